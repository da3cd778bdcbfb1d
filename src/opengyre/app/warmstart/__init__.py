"""How the quickstart's policy is made: sloppy demonstrations, a small vocabulary, imitation."""

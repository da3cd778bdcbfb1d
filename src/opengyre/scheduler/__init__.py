"""Who rolls out, who trains, when: cells, waterlevel, bursts, staleness, policies. Pure."""

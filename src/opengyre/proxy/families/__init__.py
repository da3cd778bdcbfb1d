"""Model families: how messages become tokens and tokens become messages."""

"""Benches: the product's own claims, measured as ratios in one run on one machine."""

"""A recorded run as data for others: trajectories in Parquet, conversations in ATIF."""

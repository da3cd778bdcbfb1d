"""The trajectory processor: record, branch, class, select, weigh, pack. Pure."""

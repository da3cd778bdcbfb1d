"""The trajectory processor: record, class, select, weigh, pack. Pure: no clock, no I/O, no tensors."""

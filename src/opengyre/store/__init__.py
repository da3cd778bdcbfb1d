"""The durable record of a run: SQLite with write-ahead log, and recovery."""

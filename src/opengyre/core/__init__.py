"""The words everyone speaks: records, reasons, the root error, the Clock and Generator protocols."""

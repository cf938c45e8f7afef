"""What looks after a run: refused steps, collapse, signals, locks, the log."""

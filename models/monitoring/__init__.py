"""Monitoring of a run: health, signals, locks, logs."""

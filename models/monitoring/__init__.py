"""Monitoring of a run: skipped steps, recovery, health, signals, locks, logs."""

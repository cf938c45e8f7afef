"""Training: losses, schedules, the optimiser, one step, checkpoints and the log."""

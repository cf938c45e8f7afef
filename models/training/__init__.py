"""Training: one step (gradient, update), schedules, the state of a training, and the watch over it."""

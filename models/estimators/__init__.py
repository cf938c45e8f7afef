"""Estimators: where along a ray the fields are evaluated. Each owns its state, its schedule and its update."""

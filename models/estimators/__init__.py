"""Estimators determine the sample positions along rays. Each has its state, its schedule and its update."""

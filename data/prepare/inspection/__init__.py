"""Checks whether a scene is fit for training: a table of findings, and an overview image."""

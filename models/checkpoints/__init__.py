"""Checkpoints: our own files, and those of the published code."""

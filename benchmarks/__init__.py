"""Measurements of the trainer, alone and beside the published code."""

"""Measurements of the trainer, alone and compared with the published code."""

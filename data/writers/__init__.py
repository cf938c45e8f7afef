"""Writes a `Scene` to files: one module per on-disk format."""

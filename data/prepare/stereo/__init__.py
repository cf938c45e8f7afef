"""Depth maps of photographs with known cameras, and their fusion."""

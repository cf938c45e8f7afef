"""Checkpoints: files of this program, of the published code, and Gaussians as .ply."""

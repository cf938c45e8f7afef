"""Cameras and points from matched features: tracks, triangulation, bundle adjustment."""

"""Outputs of a trained model: images, meshes, videos, each in the folder that the published code uses."""

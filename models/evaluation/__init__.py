"""Metrics of a trained model: of its images, its surface and its cameras."""

"""Metrics of a trained model: of its images, of its surface, and of its cameras."""

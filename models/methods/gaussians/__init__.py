"""Gaussians: ellipsoids or surfels laid over each other, whose number follows what the photographs ask for."""

"""Gaussian splatting with ellipsoids (3DGS) or surfels (2DGS)."""

"""Gaussian splatting with ellipsoids (3DGS) or surfels (2DGS) and adaptive density control."""

"""NeRF: a radiance field of two networks (arXiv 2003.08934)."""

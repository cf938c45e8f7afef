"""Feature-grid methods sampled in occupied cells: a surface (NeuS) and a radiance field (NeRF)."""

"""Fields on grids of features, sampled only where something may be: a surface (NeuS) and a radiance field (NeRF)."""

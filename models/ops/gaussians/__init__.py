"""Operations of Gaussians: projection, rasterisation, noise, and the loss of images."""

"""Scene loading: readers, cameras, rays, pixel sampling. Does not import `models` or Jittor."""

"""Scenes in: readers, cameras, rays, pixel sampling. Knows nothing of `models`, nor of Jittor."""

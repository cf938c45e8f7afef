"""The region of interest: the sphere that becomes the unit sphere of the working frame."""

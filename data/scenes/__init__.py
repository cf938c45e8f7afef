"""From a `ParsedScene` to a `Scene`: undistortion, the region of interest, split, and the sampling of pixels."""

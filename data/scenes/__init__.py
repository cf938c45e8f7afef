"""From a `ParsedScene` to a `Scene`: split, camera refinement, undistortion, and the sampling of pixels."""

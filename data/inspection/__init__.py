"""Is a scene fit to be trained on? A table of findings, and an image of cameras, points and the sphere."""

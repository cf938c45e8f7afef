"""Is a scene fit to be trained on? A table of findings, and a picture of cameras, points and the sphere."""

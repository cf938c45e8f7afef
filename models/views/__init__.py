"""Pictures: images rendered in chunks, their metrics, video, shaded meshes and the report."""

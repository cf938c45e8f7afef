"""From a signed distance function to triangles and mesh files."""

"""From a signed distance function to triangles, and their files."""

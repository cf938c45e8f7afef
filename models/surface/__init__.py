"""From a signed distance function to triangles, their export, and the distance between two surfaces."""

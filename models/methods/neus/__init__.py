"""NeuS: a surface as the zero level set of a signed distance (arXiv 2106.10689)."""

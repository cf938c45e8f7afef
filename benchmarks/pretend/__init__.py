"""A simulated GPU: libraries that accept all calls and do nothing, for checks without a GPU."""

"""The parts of `benchmarks.bm_peers`."""

"""The parts of `benchmarks.bm_time_to_quality`."""

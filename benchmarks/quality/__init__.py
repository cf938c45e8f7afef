"""How good a model is after how much time: what `benchmarks.bm_time_to_quality` consists of."""

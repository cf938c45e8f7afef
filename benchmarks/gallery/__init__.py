"""A gallery of scenes that trainings are judged by: what `benchmarks.bm_gallery` consists of."""

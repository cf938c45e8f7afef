"""The scenes, runs and page of `benchmarks.bm_gallery`."""

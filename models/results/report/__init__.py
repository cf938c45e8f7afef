"""HTML pages of runs: self-contained files that open without a network."""

"""CUDA as it is found: driver, cards, toolkits, what follows from them, and a home that Jittor builds against."""

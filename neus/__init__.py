"""NeuS in Jittor as a command (`neus`, see __main__.py)."""

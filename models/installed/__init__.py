"""NeuS in Jittor as a command (`neus`, see __main__.py). An installation has this folder's files in `neus/`."""

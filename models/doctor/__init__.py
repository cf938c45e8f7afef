"""Is this machine fit for the program, and where not, what is to be done: `--mode doctor`."""

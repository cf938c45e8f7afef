"""The checks of `--mode doctor`: whether this machine can run the program, and remedies if not."""

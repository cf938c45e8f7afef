"""CUDA: detection of driver, GPUs and toolkits, choice of a toolkit, and the folder that Jittor builds against."""

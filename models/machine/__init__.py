"""The machine: memory, compilers, CUDA, ranks, and the import of Jittor."""

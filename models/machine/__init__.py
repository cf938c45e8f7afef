"""The machine: memory, compilers, CUDA, processes, and the import of Jittor."""

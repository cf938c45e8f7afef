"""Native kernels, each beside its reference in plain Jittor."""

"""Operations: native kernels, each with a reference in plain Jittor."""

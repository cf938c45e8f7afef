"""The machine: its memory, its compilers, and the one door to Jittor."""

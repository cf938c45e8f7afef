"""Path of the program, and the command that starts it."""

from __future__ import annotations

from models.interface import PROGRAM_FOLDER

PROGRAM = PROGRAM_FOLDER / "exp_runner.py"
FROM_A_CLONE = "python exp_runner.py"
# Where pip installed it, the folder is the package `neus`, which has this module of the command (models/installed).
CALLED = "neus" if (PROGRAM_FOLDER / "__main__.py").is_file() else FROM_A_CLONE

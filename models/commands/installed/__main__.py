"""The command `neus`, and `python -m neus`: the program exp_runner.py with the same flags."""

import os
import sys
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
# Beside this file where pip installed it; in a clone, at the top.
RUNNER = next(path for folder in (HERE, *HERE.parents) if (path := folder / "exp_runner.py").is_file())


def main() -> NoReturn:
    """Replace this process by the program, which sets up its own search path, threads and signals."""
    os.execv(sys.executable, [sys.executable, str(RUNNER), *sys.argv[1:]])


if __name__ == "__main__":
    main()

"""The command `neus`, and `python -m neus`: the program exp_runner.py with the same flags."""

import os
import sys
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
PROGRAM = next(path for path in (HERE / "exp_runner.py", HERE.parent / "exp_runner.py") if path.is_file())


def main() -> NoReturn:
    """Replace this process by the program, which sets up its own search path, threads and signals."""
    os.execv(sys.executable, [sys.executable, str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()

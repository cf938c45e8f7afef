"""The program: its folder, the confs in it, the command that starts it, and its version."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

PROGRAM_FOLDER = Path(__file__).resolve().parents[2]
PROGRAM = PROGRAM_FOLDER / "exp_runner.py"
FROM_A_CLONE = "python exp_runner.py"
# Where pip installed it, the folder is the package `neus`, which has this module of the command.
CALLED = "neus" if (PROGRAM_FOLDER / "__main__.py").is_file() else FROM_A_CLONE
CONFS = Path("confs")
DEMO, FAST = CONFS / "demo.conf", CONFS / "fast.conf"


def find_conf(path: Path) -> Path:
    """The conf file that a --conf names: it, or `confs/NAME` for a name alone, here or in the program's folder.

    If there is none of them, the first of them in a folder that holds confs, which the message then names.
    """
    names = [path] if path.parent != Path() else [path, CONFS / path]
    places = [place / name for place in (Path(), PROGRAM_FOLDER) for name in names]
    files = [place for place in places if os.path.isfile(place)]
    return next(iter(files or (place for place in places if any(place.parent.glob("*.conf")))), path)


def existing_in_program(dataset: Any) -> Any:
    """A `DatasetConfig` with each path that exists in the program's folder and not here replaced by that there."""
    paths = {name: getattr(dataset, name) for name in ("data_dir", "test_dir", "reference_mesh")}
    moved: dict[str, Any] = {
        name: str(PROGRAM_FOLDER / path)
        for name, path in paths.items()
        if path and not os.path.exists(path) and os.path.exists(PROGRAM_FOLDER / path)
    }
    return replace(dataset, **moved)


DISTRIBUTION = "neus-jittor"
GIT_SECONDS = 10.0  # seconds


@cache
def program_version() -> str:
    """Version and, in a clone, commit, with "changed" if its files differ from it: "0.2.0, commit 0123456789"."""
    commit = _git("rev-parse", "--short=10", "HEAD") if (PROGRAM_FOLDER / ".git").exists() else ""
    if not commit:
        return _number()
    changed = ", changed" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{_number()}, commit {commit}{changed}"


def _number() -> str:
    """The number in pyproject.toml of a clone, else that of the installed package."""
    try:
        return tomllib.loads((PROGRAM_FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    except (OSError, ValueError, KeyError):
        pass
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _git(*words: str) -> str:
    """The output of git in this folder; "" if it fails."""
    try:
        output = subprocess.run(
            ["git", "-C", str(PROGRAM_FOLDER), *words], capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return output.stdout.strip()

"""The version of this program."""

from __future__ import annotations

import importlib.metadata
import subprocess
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "neus-jittor"
PATIENCE = 10.0  # seconds


@cache
def program_version() -> str:
    """Version and, in a clone, commit, with "changed" if its files differ from it: "0.2.0, commit 0123456789"."""
    commit = _git("rev-parse", "--short=10", "HEAD") if (ROOT / ".git").exists() else ""
    if not commit:
        return _number()
    changed = ", changed" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{_number()}, commit {commit}{changed}"


def _number() -> str:
    """The number in pyproject.toml of a clone, else that of the installed package."""
    try:
        return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    except (OSError, ValueError, KeyError):
        pass
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _git(*words: str) -> str:
    """The output of git in this folder; "" if it fails."""
    try:
        found = subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return found.stdout.strip()

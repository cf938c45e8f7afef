"""Removes the current folder from Python's search path, since it may contain foreign files.

This module is imported before any other, and imports only modules that the interpreter has already loaded.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # the folder of data/ and models/


def without_current_folder(entries: list[str]) -> list[str]:
    """The absolute entries of a search path other than the current folder and ROOT.

    ROOT is not needed: packages that are imported already find their own modules.
    """
    dropped = (ROOT, _current_folder())
    return [entry for entry in entries if os.path.isabs(entry) and os.path.realpath(entry) not in dropped]


def _current_folder() -> str:
    """The real path of the current folder; "" if it was removed."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""


def guard_process(entries: list[str]) -> None:
    """Set the search path to `entries` without the current folder, for this process and its Python children."""
    sys.path[:] = without_current_folder(entries)
    os.environ.update(safe_environment())


def safe_environment() -> dict[str, str]:
    """The environment for a Python child that does not import from the current folder."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(without_current_folder(given)),  # empty: not set
    }

"""Where Python looks for modules: never in the folder that a program is started in, which holds somebody's files.

This module is imported before any other: it needs only what the interpreter has loaded by itself.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # the folder of data/ and models/


def without_current_folder(entries: list[str]) -> list[str]:
    """The entries of a search path that are other folders than the current one, under whatever name, and ROOT.

    ROOT is not needed: its packages, once imported, know where their modules are.
    """
    dropped = (ROOT, _current_folder())
    return [entry for entry in entries if os.path.isabs(entry) and os.path.realpath(entry) not in dropped]


def _current_folder() -> str:
    """Its real path; "" where it was removed."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""


def guard_process(entries: list[str]) -> None:
    """Make `entries` without the current folder the search path of this process, and of Pythons that it starts."""
    sys.path[:] = without_current_folder(entries)
    os.environ.update(safe_environment())


def safe_environment() -> dict[str, str]:
    """The environment for a Python that is started: what it imports does not come from the current folder."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(without_current_folder(given)),  # an empty one counts as none
    }

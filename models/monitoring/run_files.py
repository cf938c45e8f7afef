"""Files of a run in its folder that are removed again where the run is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

from data.errors import UserError
from data.io.files import missing_folders, remove, remove_empty
from models.monitoring.lock import LOCK_NAME
from models.monitoring.logger import LOG_FOLDER

RECORDING = "recording"
OF_A_TRAINING = (LOCK_NAME, LOG_FOLDER, RECORDING)  # worth nothing without a step
OF_A_RESULT = (LOG_FOLDER,)


class RunFiles:
    """Remembers a folder as it is before a run; `remove` makes it that again, unless there is something to keep."""

    def __init__(self, folder: Path, passing: tuple[str, ...]) -> None:
        """`passing`: names of what is worth nothing by itself."""
        self._folder = folder
        self._missing = missing_folders(folder)
        self._before = {path.name for path in _entries(folder)}
        self._passing = passing
        self._has_result = False

    def keep(self) -> None:
        """From now on there is something to keep."""
        self._has_result = True

    def remove(self) -> None:
        """Remove what is new in the folder, and the folder where it is new; nothing where a result is among it."""
        new = [path for path in _entries(self._folder) if path.name not in self._before]
        if self._has_result or any(path.name not in self._passing and not _is_empty(path) for path in new):
            return
        for path in new:
            with contextlib.suppress(UserError):
                remove(path)
        remove_empty(self._missing)


def _entries(folder: Path) -> list[Path]:
    """What lies in a folder; [] where it cannot be listed."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_empty(path: Path) -> bool:
    """Whether a path is a folder without content."""
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())

"""The files of a run: its lock, its recording, and what remains if it fails before its first result."""

from __future__ import annotations

import contextlib
from pathlib import Path

from data.errors import UserError
from data.io.files import (
    make_folder,
    missing_folders,
    read_regular,
    remove,
    remove_empty,
    write_atomically,
    write_result,
)
from data.io.lock import FileLock
from models.conf import ExperimentConfig, to_hocon
from models.runs.logger import LOG_FOLDER

TRAINING_LOCK = ".training.lock"
RECORDING = "recording"
OF_A_TRAINING = (TRAINING_LOCK, LOG_FOLDER, RECORDING)  # of no use without a finished step
OF_A_RESULT = (LOG_FOLDER,)


class FolderLock(FileLock):
    """A lock on `<folder>/.training.lock`. The file is not removed: otherwise two processes could lock two files."""

    def __init__(self, folder: Path) -> None:
        """Acquire the lock; raises TakenError if another training has it, UserError if the file cannot be written."""
        path = folder / TRAINING_LOCK
        rest = f"is running in {folder}: wait for it, stop it, or choose another general.base_exp_dir"
        try:
            super().__init__(path, "another training", rest)
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written ({error.strerror or error}), and training requires it; make it "
                "writable, or choose another general.base_exp_dir"
            ) from error


class RunFiles:
    """Records the content of a folder before a run; `remove` restores it, unless there is a result."""

    def __init__(self, folder: Path, passing: tuple[str, ...]) -> None:
        """`passing`: names of files that do not count as results."""
        self._folder = folder
        self._missing = missing_folders(folder)
        self._before = {path.name for path in _listing(folder)}
        self._passing = passing
        self._has_result = False

    def keep(self) -> None:
        """Keep the files from now on."""
        self._has_result = True

    def remove(self) -> None:
        """Remove new files, and the folder if it is new; nothing is removed if a result is among them."""
        new = [path for path in _listing(self._folder) if path.name not in self._before]
        results = [path for path in new if path.name not in self._passing]
        if self._has_result or any(path.is_symlink() or not path.is_dir() or any(path.iterdir()) for path in results):
            return
        for path in new:
            with contextlib.suppress(UserError):
                remove(path)
        remove_empty(self._missing)


def record(folder: Path, conf: ExperimentConfig) -> None:
    """Write the resolved conf and copies of the recorded folders' .py files to `folder`/recording, as published.

    The packages in a folder are copied, too.
    """
    try:
        write_result(make_folder(folder, RECORDING) / "config.conf", to_hocon(conf).encode())
        for name in conf.general.recording:
            source = Path(name)
            for file in _python_files(source):
                within = file.parent.relative_to(source)
                target = make_folder(folder, Path(RECORDING) / source.name / within)
                write_atomically(target / file.name, read_regular(file))
    except (OSError, ValueError) as error:
        raise UserError(f"the recording in {folder} cannot be written ({error}); correct general.recording") from error


def _python_files(folder: Path) -> list[Path]:
    """The .py files of a folder and of the packages inside it."""
    packages = sorted(path.parent for path in folder.glob("*/__init__.py") if not path.parent.is_symlink())
    files = sorted(file for file in folder.glob("*.py") if file.is_file())
    return files + [file for package in packages for file in _python_files(package)]


def _listing(folder: Path) -> list[Path]:
    """What a folder contains; [] if it cannot be listed."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []

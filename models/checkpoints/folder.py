"""A folder of checkpoints: finds the newest intact one, removes old ones, and replaces those of an earlier run.

The step is read from the file, not from its name. Only checkpoints written by this program are removed; unreadable and
other files are kept.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

from data.io.files import make_folder, remove_empty
from models.checkpoints.ours import checkpoint_name, header_step, load_checkpoint, not_finite, save_checkpoint
from models.training.checkpoint import Checkpoint, CheckpointError

SUFFIX = ".safetensors"
EARLIER = "earlier"  # subfolder for the checkpoints that a new training replaces
REFUSED_SUFFIX = ".refused"  # appended to the name of an unreadable file before a new one is written in its place

_FILE_NAME = re.compile(r"ckpt_([0-9]{6,})\.safetensors")


class CheckpointFolder:
    """The checkpoints of one training.

    A training that starts over keeps the earlier checkpoints until its own first one is complete. Then they are
    removed, the newest last, so that after a kill at any time `latest_checkpoint` finds an intact one.
    """

    def __init__(self, folder: Path, keep: int, starts_over: bool) -> None:
        """keep: number of checkpoints to keep, 0: all; starts_over: the existing checkpoints will be removed.

        Removes incomplete files of killed runs, so no other process may write to the folder.
        """
        self.folder = folder
        self._keep = keep
        self._starts_over = starts_over
        self._readable: dict[Path, bool] = {}  # cache of `_is_readable`, for pruning
        self._protected = 0  # the step whose checkpoint is not pruned
        for path in folder.glob(".ckpt_*.safetensors.*.tmp"):
            with contextlib.suppress(OSError):
                path.unlink()

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and remove old ones; raises CheckpointError if that fails.

        An unreadable file of the same name is not overwritten: it is renamed with the suffix `.refused`.
        """
        earlier = _of_this_program(self.folder) if self._starts_over else []
        if self._keep:
            self._own(checkpoint.step)  # fills the cache before the write, so that pruning follows immediately
        _rename_unreadable(self.folder / checkpoint_name(checkpoint.step))
        path = save_checkpoint(self.folder, checkpoint)
        self._readable[path] = True
        for old in earlier:
            if old != path:
                _remove_earlier(old)
        self._starts_over = False
        protected = self.folder / checkpoint_name(self._protected)
        for old in self._own(checkpoint.step)[self._keep :] if self._keep else []:
            if old != protected:
                with contextlib.suppress(OSError):
                    old.unlink()
        return path

    def last_finite(self, warn: Callable[[str], None], before: int | None = None) -> Checkpoint | None:
        """The newest readable checkpoint of this run in which all numbers are finite; None if there is none.

        before: only consider smaller steps.
        """
        files = [] if self._starts_over else _newest_first(self.folder)
        files = [entry for entry in files if before is None or entry[0] < before]
        return next((checkpoint for checkpoint in _loaded(files, warn) if not_finite(checkpoint) is None), None)

    def protect(self, step: int) -> None:
        """Exclude the checkpoint of this step from pruning; the previously protected one may be pruned."""
        self._protected = step

    def at(self, step: int) -> Checkpoint | None:
        """The checkpoint of this run at that step; None if there is no readable one."""
        path = self.folder / checkpoint_name(step)
        try:
            return load_checkpoint(path) if path.is_file() and not self._starts_over else None
        except CheckpointError:
            return None

    def retire_after(self, step: int) -> None:
        """Append `.worse` to the names of checkpoints of later steps, so that no training continues from them."""
        for inside, path in _newest_first(self.folder):
            if inside > step and not self._starts_over:
                path.replace(path.with_name(path.name + ".worse"))

    def _own(self, step: int) -> list[Path]:
        """The readable checkpoints up to `step` whose names match their steps, newest first."""
        files = [(inside, path) for inside, path in _newest_first(self.folder) if inside <= step]
        own = [path for inside, path in files if path.name == checkpoint_name(inside)]
        for path in own:
            if path not in self._readable:
                self._readable[path] = _is_readable(path)
        return [path for path in own if self._readable[path]]


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest complete checkpoint of `folder` by step; None if there is none, or no folder.

    Each damaged one that is skipped is reported through `warn`. Raises CheckpointError if all of them are damaged or
    the folder cannot be listed. Temporary files of an interrupted write are ignored.
    """
    files = _newest_first(folder)
    checkpoint = next(_loaded(files, warn), None)
    if checkpoint is None and files:
        raise CheckpointError(
            f"None of the {len(files)} checkpoints in {folder} can be read: train again without --is_continue, or "
            "restore a copy of one."
        )
    return checkpoint


def _loaded(files: Iterable[tuple[int, Path]], warn: Callable[[str], None]) -> Iterator[Checkpoint]:
    """Load the checkpoints one by one; damaged ones are reported through `warn`."""
    for _, path in files:
        try:
            yield load_checkpoint(path)
        except CheckpointError as error:
            warn(f"{error} Trying the previous checkpoint.")


def checkpoint_files(folder: Path) -> dict[int, Path]:
    """The checkpoint files by step; raises CheckpointError if the folder cannot be listed."""
    return dict(reversed(_newest_first(folder)))


def has_checkpoints(folder: Path, suffix: str = "") -> bool:
    """Whether the folder has checkpoints, with the given suffix or any, including those of the published code."""
    return folder.is_dir() and any(folder.glob(f"ckpt_*{suffix}"))


def back_up(folder: Path) -> None:
    """Move the checkpoints of `folder` to `folder`/earlier, so that a training there starts at step 0.

    Files of the same name are replaced. Raises CheckpointError if they cannot be moved. No other process may write to
    the folder.
    """
    files = _newest_first(folder)
    try:
        for _, path in files:
            path.replace(make_folder(folder, EARLIER) / path.name)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: its checkpoints cannot be moved to {EARLIER}/ ({error.strerror or error}): move them yourself."
        ) from error


def remove_backup(folder: Path) -> None:
    """Remove the checkpoints of this program that `back_up` moved; raises CheckpointError."""
    for path in _of_this_program(folder / EARLIER):
        _remove_earlier(path)
    remove_empty([folder / EARLIER])


def _remove_earlier(path: Path) -> None:
    """Remove a checkpoint of an earlier run; raises CheckpointError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{path}, of an earlier run, cannot be removed ({error.strerror or error}): remove it yourself."
        ) from error


def _rename_unreadable(path: Path) -> None:
    """Rename the file at `path` if it is not a readable checkpoint; raises CheckpointError."""
    if not os.path.lexists(path) or path.is_dir() or _is_readable(path):
        return
    names = (path.with_name(f"{path.name}{REFUSED_SUFFIX}{number if number > 1 else ''}") for number in count(1))
    try:
        path.rename(next(name for name in names if not os.path.lexists(name)))
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read and cannot be renamed ({error.strerror or error}): move it yourself."
        ) from error


def _of_this_program(folder: Path) -> list[Path]:
    """The checkpoints in `folder` written by any version of this program, by their headers; oldest first."""
    return [path for _, path in reversed(_newest_first(folder)) if header_step(path) is not None]


def _newest_first(folder: Path) -> list[tuple[int, Path]]:
    """Step and path of the files in `folder` with a checkpoint's name; [] if there is no folder.

    If the step cannot be read from the file, that of the name is used. Of two files with the same step, the one whose
    name matches is first.
    """
    files = []
    try:
        for path in folder.iterdir():
            if match := _FILE_NAME.fullmatch(path.name):
                inside = header_step(path)
                step = int(match[1]) if inside is None else inside
                files.append((step, inside is not None and path.name == checkpoint_name(inside), path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"The checkpoints in {folder} cannot be listed ({error.strerror or error}).") from error
    return [(step, path) for step, _, path in sorted(files, reverse=True)]


def _is_readable(path: Path) -> bool:
    """Whether a file is a complete checkpoint that this version can read."""
    try:
        load_checkpoint(path)
    except CheckpointError:
        return False
    return True

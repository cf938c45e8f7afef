"""A folder of checkpoints: the newest good one, how many stay, and what becomes of those of an earlier run.

The step inside a file counts, whatever the file is called.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from models.checkpoints.ours import (
    Checkpoint,
    CheckpointError,
    checkpoint_name,
    header_step,
    load_checkpoint,
    not_finite,
    save_checkpoint,
)

SUFFIX = ".safetensors"
ASIDE_SUFFIX = ".earlier"  # of the folder beside, in which a run that starts over sets the earlier checkpoints aside

_FILE_NAME = re.compile(r"ckpt_([0-9]{6,})\.safetensors")


class CheckpointFolder:
    """Where one training keeps its checkpoints.

    One that starts over leaves the earlier ones where they are until it has one of its own to write. They are set aside
    by one rename then, and removed when the new one is complete. Whenever it is killed, `newest_checkpoint` finds the
    earlier ones or a new one.
    """

    def __init__(self, folder: Path, keep: int, starts_over: bool) -> None:
        """`keep` checkpoints stay, 0: all; `starts_over`: those that lie there now are to go.

        Puts right what a killed run left. Only where no other writer can be alive; raises CheckpointError.
        """
        self.folder = folder
        self._keep = keep
        self._starts_over = starts_over
        _finish_start(folder)
        _discard_unfinished(folder)
        if starts_over and _aside(folder).exists():  # better now than at the first checkpoint
            raise CheckpointError(
                f"{_aside(folder)}, checkpoints of a run that is over, cannot be removed: do it yourself."
            )

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and remove those that are not to stay; raises CheckpointError where that is not possible.

        Earlier ones are where they were then.
        """
        if self._starts_over:
            path = self._save_first(checkpoint)
            self._starts_over = False
        else:
            path = save_checkpoint(self.folder, checkpoint)
        self._prune(checkpoint.step)
        return path

    def _save_first(self, checkpoint: Checkpoint) -> Path:
        """The first checkpoint of a run that starts over, in the place of the earlier ones."""
        try:
            if self.folder.exists():
                self.folder.rename(_aside(self.folder))
        except OSError as error:
            raise CheckpointError(
                f"The earlier checkpoints in {self.folder} cannot be set aside ({error.strerror or error}): move them "
                "away yourself."
            ) from error
        try:
            return save_checkpoint(self.folder, checkpoint)
        finally:
            _finish_start(self.folder)

    def last_finite(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest readable checkpoint of this run in which every number is finite; None where there is none."""
        for _, path in [] if self._starts_over else _newest_first(self.folder):
            try:
                checkpoint = load_checkpoint(path)
            except CheckpointError as error:
                warn(f"{error} Trying the checkpoint before it.")
                continue
            if not_finite(checkpoint) is None:
                return checkpoint
        return None

    def _prune(self, step: int) -> None:
        """Remove all but the newest of what this run wrote up to `step`; one that cannot be removed stays.

        A file that is damaged, under a name that is not its own, or of a later step is none of them.
        """
        if self._keep == 0:
            return
        own = [path for inside, path in _newest_first(self.folder) if inside <= step and _is_own_name(path)]
        for path in own[self._keep :]:
            with contextlib.suppress(OSError):
                path.unlink()


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest complete checkpoint of `folder` by step; None where there is none, or no folder.

    Each damaged one that is passed over is reported through `warn`. Raises CheckpointError if all of them are damaged
    or the folder cannot be listed. Temporary files of an interrupted write are not looked at.
    """
    found = _newest_first(folder)
    for _, path in found:
        try:
            return load_checkpoint(path)
        except CheckpointError as error:
            warn(f"{error} Trying the checkpoint before it.")
    if not found:
        return None
    raise CheckpointError(
        f"None of the {len(found)} checkpoints in {folder} can be read: train anew without --is_continue, or put back "
        "a copy of one."
    )


def newest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """`latest_checkpoint`, or that of the earlier run where one that starts over was killed before its first."""
    return latest_checkpoint(folder, warn) or latest_checkpoint(_aside(folder), warn)


def has_checkpoints(folder: Path, suffix: str = "") -> bool:
    """Whether checkpoints lie there, or are set aside; those of a suffix only, or of the published code too."""
    return any(place.is_dir() and any(place.glob(f"ckpt_*{suffix}")) for place in (folder, _aside(folder)))


def _aside(folder: Path) -> Path:
    """Where the checkpoints of `folder` are set aside."""
    return folder.with_name(folder.name + ASIDE_SUFFIX)


def _finish_start(folder: Path) -> None:
    """Remove checkpoints that were set aside where newer ones are there, else put them back; raises CheckpointError."""
    aside = _aside(folder)
    if not aside.is_dir():
        return
    if _newest_first(folder):
        shutil.rmtree(aside, ignore_errors=True)
        return
    _discard_unfinished(folder)
    try:
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
    except OSError as error:
        raise CheckpointError(
            f"The earlier checkpoints cannot be moved back from {aside} to {folder} ({error.strerror or error}): do "
            "it yourself."
        ) from error


def _discard_unfinished(folder: Path) -> None:
    """Remove what killed writers left half-written in `folder`; only where no other writer can be alive."""
    for path in folder.glob(".ckpt_*.safetensors.*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def _newest_first(folder: Path) -> list[tuple[int, Path]]:
    """Step and path of the files of `folder` that have a checkpoint's name; [] where there is no such folder.

    Where the step inside cannot be read the name tells it; of two files of a step the one that is named after it comes
    first.
    """
    try:
        matches = [(_FILE_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"The checkpoints in {folder} cannot be listed ({error.strerror or error}).") from error
    found = []
    for match, path in matches:
        if match:
            inside = header_step(path)
            found.append((int(match[1]) if inside is None else inside, _is_own_name(path), path))
    return [(step, path) for step, _, path in sorted(found, reverse=True)]


def _is_own_name(path: Path) -> bool:
    """Whether a file is readable and named after the step inside."""
    step = header_step(path)
    return step is not None and path.name == checkpoint_name(step)

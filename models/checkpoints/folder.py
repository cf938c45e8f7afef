"""A folder of checkpoints: the newest good one, how many stay, and what becomes of those of an earlier run.

The step inside a file counts, whatever the file is called. Nothing goes but checkpoints that this program wrote: what
it cannot read, and whatever else lies in the folder, stays.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from data.io.files import make_folder, remove_empty
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
EARLIER = "earlier"  # folder below that of the checkpoints, for those that a training which starts over replaces
WORSE_SUFFIX = ".worse"  # added to the names of what a training went back from
REFUSED_SUFFIX = ".refused"  # added to the name of a file that could not be read, where a new one takes its name

_FILE_NAME = re.compile(r"ckpt_([0-9]{6,})\.safetensors")


class CheckpointFolder:
    """Where one training keeps its checkpoints.

    One that starts over leaves the earlier ones where they are until its own first one is complete. They are removed
    then, the newest last. Whenever it is killed, `latest_checkpoint` finds the newest earlier one or a new one.
    """

    def __init__(self, folder: Path, keep: int, starts_over: bool) -> None:
        """`keep` checkpoints stay, 0: all; `starts_over`: those that lie there now are to go.

        Removes what a killed run left half-written. Only where no other writer can be alive.
        """
        self.folder = folder
        self._keep = keep
        self._starts_over = starts_over
        self._readable: dict[Path, bool] = {}  # what was looked at, for pruning
        self._spared = 0  # the step whose checkpoint stays however old it gets
        _discard_unfinished(folder)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and remove those that are not to stay; raises CheckpointError where that is not possible.

        A file of its name that cannot be read is not overwritten: it gets the suffix `.refused`.
        """
        earlier = _of_this_program(self.folder) if self._starts_over else []
        if self._keep:
            self._own(checkpoint.step)  # is looked at before the write: a kill soon after it finds the others gone
        _set_unreadable_beside(self.folder / checkpoint_name(checkpoint.step))
        path = save_checkpoint(self.folder, checkpoint)
        self._readable[path] = True
        for old in earlier:
            if old != path:
                _remove_earlier(old)
        self._starts_over = False
        self._prune(checkpoint.step)
        return path

    def last_finite(self, warn: Callable[[str], None], before: int | None = None) -> Checkpoint | None:
        """The newest readable checkpoint of this run in which every number is finite; None where there is none.

        `before`: only of steps below it.
        """
        found = [] if self._starts_over else _newest_first(self.folder)
        found = [entry for entry in found if before is None or entry[0] < before]
        return next((checkpoint for checkpoint in _loaded(found, warn) if not_finite(checkpoint) is None), None)

    def spare(self, step: int) -> None:
        """Keep the checkpoint of this step too, in place of the one that was spared before."""
        self._spared = step

    def at(self, step: int) -> Checkpoint | None:
        """The checkpoint of this run of that step; None where there is none that can be read."""
        path = self.folder / checkpoint_name(step)
        try:
            return load_checkpoint(path) if path.is_file() and not self._starts_over else None
        except CheckpointError:
            return None

    def set_later_aside(self, step: int) -> None:
        """Rename the checkpoints of later steps to names ending in `.worse`, which no training goes on from."""
        for inside, path in _newest_first(self.folder):
            if inside > step and not self._starts_over:
                path.replace(path.with_name(path.name + WORSE_SUFFIX))

    def _prune(self, step: int) -> None:
        """Remove all but the newest of what this program wrote up to `step`; one that cannot be removed stays.

        A file that cannot be read, under a name that is not its own, or of a later step is none of them.
        """
        if self._keep == 0:
            return
        spared = self.folder / checkpoint_name(self._spared)
        for path in [path for path in self._own(step)[self._keep :] if path != spared]:
            with contextlib.suppress(OSError):
                path.unlink()

    def _own(self, step: int) -> list[Path]:
        """The checkpoints up to `step` under their own names, newest first, of those that can be read."""
        found = [(inside, path) for inside, path in _newest_first(self.folder) if inside <= step]
        own = [path for inside, path in found if path.name == checkpoint_name(inside)]
        for path in own:
            if path not in self._readable:
                self._readable[path] = _is_readable(path)
        return [path for path in own if self._readable[path]]


def latest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest complete checkpoint of `folder` by step; None where there is none, or no folder.

    Each damaged one that is passed over is reported through `warn`. Raises CheckpointError if all of them are damaged
    or the folder cannot be listed. Temporary files of an interrupted write are not looked at.
    """
    found = _newest_first(folder)
    for checkpoint in _loaded(found, warn):
        return checkpoint
    if not found:
        return None
    raise CheckpointError(
        f"None of the {len(found)} checkpoints in {folder} can be read: train anew without --is_continue, or put back "
        "a copy of one."
    )


def _loaded(found: Iterable[tuple[int, Path]], warn: Callable[[str], None]) -> Iterator[Checkpoint]:
    """The checkpoints one after the other; those that are damaged are reported through `warn`."""
    for _, path in found:
        try:
            yield load_checkpoint(path)
        except CheckpointError as error:
            warn(f"{error} Trying the checkpoint before it.")


def checkpoint_files(folder: Path) -> dict[int, Path]:
    """The files with a checkpoint's name by their steps; raises CheckpointError where the folder cannot be listed."""
    return dict(reversed(_newest_first(folder)))


def has_checkpoints(folder: Path, suffix: str = "") -> bool:
    """Whether checkpoints lie there; those of a suffix only, or of the published code too."""
    return folder.is_dir() and any(folder.glob(f"ckpt_*{suffix}"))


def set_aside(folder: Path) -> None:
    """Move the checkpoints of `folder` to `folder`/earlier, so that a training there begins at step 0.

    Of two with one name the newer stays. Raises CheckpointError where they cannot be moved. Only where no other writer
    can be alive.
    """
    found = [path for _, path in _newest_first(folder)]
    try:
        for path in found:
            path.replace(make_folder(folder, EARLIER) / path.name)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: its checkpoints cannot be moved to {EARLIER}/ ({error.strerror or error}): do it yourself."
        ) from error


def remove_set_aside(folder: Path) -> None:
    """Remove what `set_aside` moved, as far as this program wrote it; raises CheckpointError."""
    for path in _of_this_program(folder / EARLIER):
        _remove_earlier(path)
    remove_empty([folder / EARLIER])


def _remove_earlier(path: Path) -> None:
    """Remove a checkpoint of the run before; raises CheckpointError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{path}, of a run that is over, cannot be removed ({error.strerror or error}): do it yourself."
        ) from error


def _set_unreadable_beside(path: Path) -> None:
    """Rename what is at `path` where it is no checkpoint that can be read; raises CheckpointError."""
    if not os.path.lexists(path) or path.is_dir() or _is_readable(path):
        return
    beside, number = path.with_name(path.name + REFUSED_SUFFIX), 1
    while os.path.lexists(beside):
        number += 1
        beside = path.with_name(f"{path.name}{REFUSED_SUFFIX}{number}")
    try:
        path.rename(beside)
    except OSError as error:
        raise CheckpointError(
            f"{path} could not be read, and cannot be renamed ({error.strerror or error}): move it away yourself."
        ) from error


def _discard_unfinished(folder: Path) -> None:
    """Remove what killed writers left half-written in `folder`; only where no other writer can be alive."""
    for path in folder.glob(".ckpt_*.safetensors.*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


def _of_this_program(folder: Path) -> list[Path]:
    """The checkpoints in `folder` that this program wrote, whatever version of it, by their headers; oldest first."""
    return [path for _, path in reversed(_newest_first(folder)) if header_step(path) is not None]


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
            step = int(match[1]) if inside is None else inside
            found.append((step, inside is not None and path.name == checkpoint_name(inside), path))
    return [(step, path) for step, _, path in sorted(found, reverse=True)]


def _is_readable(path: Path) -> bool:
    """Whether a file is a whole checkpoint that this version reads."""
    try:
        load_checkpoint(path)
    except CheckpointError:
        return False
    return True

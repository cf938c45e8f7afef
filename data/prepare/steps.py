"""Steps with results in a folder: a second run skips steps that are complete, intact and have the same inputs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import INVALID, UserError
from data.io import bars
from data.io.files import open_input, read_regular, remove, write_result
from data.io.streams import is_terminal

Say = Callable[[str], None]  # called with each line for the user
Noted = dict[str, list[object]]  # name below a folder -> size and SHA-256 of the file


class WorkError(UserError):
    """The machine or a library failed, not the inputs: another call can continue from the results so far."""


@dataclass(frozen=True)
class Step:
    """One step of a chain."""

    name: str
    work: Callable[[], Any]  # returns the result, a JSON value
    outputs: tuple[str, ...] = ()  # files and folders below the steps' folder, removed before the step starts anew
    needed_by: tuple[str, ...] = ()  # steps that must be redone when the outputs change
    read: Callable[[Any], Any] = lambda result: result  # raises one of INVALID for an invalid result
    # If given, the outputs are modified by later steps too, and `work` resumes from the outputs of an interrupted run
    # if they are sound.
    is_sound: Callable[[], bool] | None = None
    is_whole: Callable[[], bool] = lambda: True  # whether sound outputs are complete
    is_repeated: bool = False  # run at every call


class Steps:
    """A chain of steps in `folder`. The key of a step is a hash of its inputs and of those of all earlier steps.

    `<step>.json` is the step's stamp: written before the work with the key, and after it with the result and the
    checksums of the outputs. A stamp or outputs that were changed are ignored.
    """

    def __init__(self, folder: Path, inputs: Mapping[str, object], say: Say) -> None:
        """`inputs`: the inputs of each step as JSON values, in the order of the steps; `say` logs skipped steps."""
        self.folder = folder
        self.reused: set[str] = set()  # the steps that reused results of an earlier run
        self._keys: dict[str, str] = {}
        self._say = say
        key = ""
        for name, value in inputs.items():
            key = hashlib.sha256(json.dumps([key, name, value], sort_keys=True).encode()).hexdigest()
            self._keys[name] = key

    def run(self, step: Step) -> Any:
        """The result of the step, passed through `read`: the stored one if it is valid, else that of `work()`."""
        stamp = self._stamp(step.name) if self.is_begun(step.name) else {}
        is_sound = bool(stamp) and step.is_sound is not None and step.is_sound()
        if "result" in stamp and not step.is_repeated:
            try:
                return self._reuse(step, stamp, is_sound)
            except INVALID:
                self._say(f"{step.name}: the result of an earlier run is damaged, missing or not usable; done again")
        if is_sound:
            self.reused.add(step.name)
        else:
            for output in step.outputs:
                remove(self.folder / output)
        if step.is_sound is not None:
            self._forget_all(step.needed_by)
        begun = {"key": self._keys[step.name], "files": stamp.get("files")}
        self._write(step.name, begun)
        result = step.work()
        files = {} if step.is_sound is not None else noted(self.folder, step.outputs)
        if files != begun["files"] and step.is_sound is None:
            self._forget_all(step.needed_by)
        self._write(step.name, {**begun, "files": files, "result": result})
        return step.read(json.loads(json.dumps(result)))

    def _reuse(self, step: Step, stamp: dict[str, Any], is_sound: bool) -> Any:
        """The stored result; raises one of INVALID if it or the outputs were changed."""
        is_there = all((self.folder / output).exists() for output in step.outputs)
        is_sound = (is_sound and step.is_whole()) if step.is_sound is not None else self._is_unchanged(stamp)
        if not (is_there and is_sound):
            raise ValueError
        value = step.read(stamp["result"])
        self._say(f"{step.name}: done before")
        self.reused.add(step.name)
        return value

    def _is_unchanged(self, stamp: dict[str, Any]) -> bool:
        files = stamp.get("files") or {}
        return all(is_as_noted(self.folder / name, size_and_sum) for name, size_and_sum in files.items())

    def key(self, name: str) -> str:
        """A hash of the inputs of the step and of all earlier ones."""
        return self._keys[name]

    def is_done(self, name: str) -> bool:
        """Whether the step is complete for these inputs."""
        return self.is_begun(name) and "result" in self._stamp(name)

    def result(self, name: str) -> Any:
        """The stored result; None if there is none."""
        return self._stamp(name).get("result")

    def is_begun(self, name: str) -> bool:
        """Whether the last run of the step had these inputs."""
        return self._stamp(name).get("key") == self._keys[name]

    def was_run(self, name: str) -> bool:
        """Whether the step was started before, with any inputs."""
        return bool(self._stamp(name))

    def forget(self, name: str) -> None:
        """Remove the stamp of the step, so that it runs again."""
        remove(self._path(name))

    def require_own(self, outputs: Iterable[str]) -> None:
        """Raises UserError if one of `outputs` exists but no step has a stamp, so that the file is foreign."""
        if any(os.path.lexists(self._path(name)) for name in self._keys):
            return
        for output in outputs:
            if os.path.lexists(self.folder / output):
                raise UserError(
                    f"{self.folder / output}: was not made by --mode prepare, which replaces only its own files; move "
                    "it elsewhere, or choose another --case"
                )

    def withdraw(self, outputs: Iterable[str]) -> None:
        """Remove `outputs`, then all stamps, and the folder if it is empty; raises UserError as `remove`."""
        for output in outputs:
            remove(self.folder / output)
        self._forget_all(self._keys)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _forget_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.forget(name)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _stamp(self, name: str) -> dict[str, Any]:
        """The stamp; {} if it is missing or damaged."""
        try:
            if not stat.S_ISREG(os.lstat(self._path(name)).st_mode):
                return {}
            value = json.loads(read_regular(self._path(name)))
            return value if value.pop("digest") == _digest(value) else {}
        except (OSError, *INVALID):
            return {}

    def _write(self, name: str, value: dict[str, Any]) -> None:
        if self._path(name).is_dir():  # foreign
            remove(self._path(name))
        write_result(self._path(name), json.dumps({**value, "digest": _digest(value)}, indent=1).encode())


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def noted(folder: Path, names: Iterable[str]) -> Noted:
    """Size and checksum of the files `names` of `folder` and of the files in the folders `names`; missing ones are
    omitted. Raises OSError for files that cannot be read.
    """
    sums: Noted = {}
    for name in names:
        inner = sorted(path for path in (folder / name).rglob("*") if path.is_file())
        for path in [folder / name] if (folder / name).is_file() else inner:
            sums[str(path.relative_to(folder))] = _size_and_sum(path)
    return sums


def is_as_noted(path: Path, size_and_sum: object) -> bool:
    """Whether the file has this size and checksum; False for a link or a pipe."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and _size_and_sum(path) == size_and_sum
    except (OSError, ValueError):  # a name that no file can have
        return False


def _size_and_sum(path: Path) -> list[object]:
    with open_input(path) as file:
        return [os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def fingerprint(paths: Sequence[Path]) -> list[list[object]]:
    """Name, size and SHA-256 of each file, to detect changed inputs. Raises OSError."""
    return [[path.name, *_size_and_sum(path)] for path in paths]


class Bar(bars.Bar):
    """A bar on stderr, shown only on a terminal."""

    def __init__(self, name: str, total: int | None, unit: str = "photo") -> None:
        super().__init__(total=total, desc=name, unit=f" {unit}", disable=not is_terminal(), dynamic_ncols=True)

    def to(self, count: int) -> None:
        """Show that `count` units are done."""
        self.update(count - self.n)

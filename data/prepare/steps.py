"""Steps whose results lie in a folder: a second run skips what is finished, whole, and still belongs to its inputs."""

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

from data.errors import UserError
from data.io.files import remove, write_result

Noted = dict[str, list[object]]  # name below a folder -> size and SHA-256 of the file
# What reading a result that is not what the step gives is known to raise.
MISREAD = (KeyError, IndexError, TypeError, ValueError, AttributeError)


class WorkError(UserError):
    """The machine or a library failed, not the inputs: what is done so far is worth going on from."""


@dataclass(frozen=True)
class Step:
    """One step of a chain."""

    name: str
    work: Callable[[], Any]  # gives the result, a value that JSON keeps
    outputs: tuple[str, ...] = ()  # files and folders below the steps' folder, removed before work that starts afresh
    needed_by: tuple[str, ...] = ()  # steps that are to be done again where the outputs become others
    read: Callable[[Any], Any] = lambda result: result  # raises one of MISREAD for what is no result of the step
    # Where it is given, later steps write to the outputs too, and `work` goes on from those of an interrupted run
    # by itself if they are sound.
    is_sound: Callable[[], bool] | None = None
    is_whole: Callable[[], bool] = lambda: True  # whether nothing is missing in sound outputs
    is_repeated: bool = False  # done at every call


class Steps:
    """A chain of steps in `folder`. Each one's key covers its inputs and those of every step before it.

    `<step>.json` is its stamp: it is written before the work with the key alone and after it with the result and what
    the outputs are. A stamp, or outputs, that are not what was written count as none.
    """

    def __init__(self, folder: Path, inputs: Mapping[str, object], say: Callable[[str], None]) -> None:
        """`inputs` holds what each step depends on beside those before it, as JSON; `say` logs skipped steps."""
        self.folder = folder
        self.reused: set[str] = set()  # the steps that took over something of an earlier run
        self._keys: dict[str, str] = {}
        self._say = say
        key = ""
        for name, value in inputs.items():
            key = hashlib.sha256(json.dumps([key, name, value], sort_keys=True).encode()).hexdigest()
            self._keys[name] = key

    def run(self, step: Step) -> Any:
        """What the step's `read` makes of its result: the one on file, where it fits and is whole, or of `work()`."""
        stamp = self._stamp(step.name) if self.is_begun(step.name) else {}
        is_sound = bool(stamp) and step.is_sound is not None and step.is_sound()
        if "result" in stamp and not step.is_repeated:
            try:
                return self._reuse(step, stamp, is_sound)
            except MISREAD:
                self._say(f"{step.name}: what an earlier run left is damaged or missing; done again")
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
        """The result on file; raises one of MISREAD where it or the outputs are not what they were."""
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

    def is_done(self, name: str) -> bool:
        """Whether the step was finished with these inputs."""
        return self.is_begun(name) and "result" in self._stamp(name)

    def result(self, name: str) -> Any:
        """The result on file; None where there is none."""
        return self._stamp(name).get("result")

    def is_begun(self, name: str) -> bool:
        """Whether the last run of the step had these inputs."""
        return self._stamp(name).get("key") == self._keys[name]

    def was_run(self, name: str) -> bool:
        """Whether the step was begun at any time, with whatever inputs."""
        return bool(self._stamp(name))

    def forget(self, name: str) -> None:
        """Have the step run again, from the start."""
        remove(self._path(name))

    def require_own(self, outputs: Iterable[str]) -> None:
        """Raises UserError where one of `outputs` is there and no stamp of a step tells who made it."""
        if any(os.path.lexists(self._path(name)) for name in self._keys):
            return
        for output in outputs:
            if os.path.lexists(self.folder / output):
                raise UserError(
                    f"{self.folder / output}: not made by --mode prepare, which replaces nothing else; move that "
                    "elsewhere, or choose another --case"
                )

    def withdraw(self, outputs: Iterable[str]) -> None:
        """Remove `outputs`, the stamps after them, and the folder where it is empty then; UserError as `remove`."""
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
        """The stamp; {} where there is none, or one that is damaged."""
        try:
            if not stat.S_ISREG(os.lstat(self._path(name)).st_mode):
                return {}
            value = json.loads(self._path(name).read_text(encoding="utf-8"))
            digest = value.pop("digest", None)
            return value if digest in (None, _digest(value)) else {}  # None: by a version that wrote none
        except (OSError, RecursionError, *MISREAD):
            return {}

    def _write(self, name: str, value: dict[str, Any]) -> None:
        if self._path(name).is_dir():  # nothing that is ours
            remove(self._path(name))
        write_result(self._path(name), json.dumps({**value, "digest": _digest(value)}, indent=1).encode())


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def noted(folder: Path, names: Iterable[str]) -> Noted:
    """What the files `names` of `folder`, and those in the folders `names`, are; names that are not there are left out.

    Raises OSError for what cannot be read.
    """
    found: Noted = {}
    for name in names:
        inner = sorted(path for path in (folder / name).rglob("*") if path.is_file())
        for path in [folder / name] if (folder / name).is_file() else inner:
            found[str(path.relative_to(folder))] = _size_and_sum(path)
    return found


def is_as_noted(path: Path, size_and_sum: object) -> bool:
    """Whether the file is what it was; a link or a pipe in its place is not."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and _size_and_sum(path) == size_and_sum
    except (OSError, ValueError):  # a name that no file can have
        return False


def _size_and_sum(path: Path) -> list[object]:
    with open(path, "rb") as file:
        return [os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def fingerprint(paths: Sequence[Path]) -> list[list[object]]:
    """Name, size and SHA-256 of each file: what tells that an input is another one. Raises OSError."""
    return [[path.name, *_size_and_sum(path)] for path in paths]

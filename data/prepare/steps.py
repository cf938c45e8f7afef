"""Steps whose results lie in a folder: a second run skips what is finished and still belongs to its inputs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.files import write_result


class Steps:
    """A chain of steps in `folder`. Each one's key covers its options and everything before it.

    `<step>.json` is its stamp: it is written before the work with the key alone and after it with the result.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """`say` hears of each step that is skipped."""
        self.folder = folder
        self.key = ""
        self._say = say

    def run(
        self,
        name: str,
        inputs: object,
        outputs: Sequence[str],
        work: Callable[[], Any],
        is_resumable: bool = False,
    ) -> Any:
        """The result of a step, a value that JSON keeps: the one on file, where its stamp fits, or that of `work()`.

        Args:
            inputs: what the step depends on beside the steps before, as JSON keeps it.
            outputs: its files and folders, relative to `folder`; removed before work that starts afresh.
            is_resumable: `work` goes on by itself from the outputs that an interrupted run with this key has left.
        """
        self.key = _digest([self.key, name, inputs])
        stamp = self.folder / f"{name}.json"
        found = _read_stamp(stamp)
        if found.get("key") == self.key and found.get("is_done") and self._has(outputs):
            self._say(f"{name}: done before")
            return found.get("result")
        if not (is_resumable and found.get("key") == self.key):
            for output in outputs:
                remove(self.folder / output)
        _write_stamp(stamp, {"key": self.key})
        result = work()
        _write_stamp(stamp, {"key": self.key, "is_done": True, "result": result})
        return result

    def is_done(self, name: str, inputs: object) -> bool:
        """Whether `run` with these inputs would find its stamp, the outputs not looked at; nothing is changed."""
        found = _read_stamp(self.folder / f"{name}.json")
        return found.get("key") == _digest([self.key, name, inputs]) and bool(found.get("is_done"))

    def _has(self, outputs: Sequence[str]) -> bool:
        return all((self.folder / output).exists() for output in outputs)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all it holds, if it is there; UserError where that is not allowed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be removed ({error.strerror or error}); remove it yourself") from error


def fingerprint(paths: Sequence[Path]) -> list[list[object]]:
    """Name, size and time of change of each file: what tells that an input is another one."""
    stats = [path.stat() for path in paths]
    return [[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in zip(paths, stats, strict=True)]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _read_stamp(path: Path) -> dict[str, Any]:
    """The stamp; {} where there is none, or one that is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _write_stamp(path: Path, value: dict[str, Any]) -> None:
    write_result(path, json.dumps(value, indent=1).encode())

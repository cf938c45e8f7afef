"""Steps whose results lie in a folder: a second run skips what is finished and still belongs to its inputs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.files import write_result


class Steps:
    """A chain of steps in `folder`. Each one's key covers its inputs and those of every step before it.

    `<step>.json` is its stamp: it is written before the work with the key alone and after it with the result.
    """

    def __init__(self, folder: Path, inputs: Mapping[str, object], say: Callable[[str], None]) -> None:
        """`inputs` holds what each step depends on beside those before it, as JSON; `say` logs skipped steps."""
        self.folder = folder
        self._keys: dict[str, str] = {}
        self._say = say
        key = ""
        for name, value in inputs.items():
            key = hashlib.sha256(json.dumps([key, name, value], sort_keys=True).encode()).hexdigest()
            self._keys[name] = key

    def run(self, name: str, outputs: Sequence[str], work: Callable[[], Any], is_resumable: bool = False) -> Any:
        """The result of a step, a value that JSON keeps: the one on file, where its stamp fits, or that of `work()`.

        Args:
            outputs: its files and folders, relative to `folder`; removed before work that starts afresh.
            is_resumable: `work` goes on by itself from the outputs that an interrupted run with this key has left.
        """
        if self.is_done(name) and all((self.folder / output).exists() for output in outputs):
            self._say(f"{name}: done before")
            return self._stamp(name)["result"]
        if not (is_resumable and self.is_begun(name)):
            for output in outputs:
                remove(self.folder / output)
        self._write(name, {"key": self._keys[name]})
        result = work()
        self._write(name, {"key": self._keys[name], "result": result})
        return result

    def is_done(self, name: str) -> bool:
        """Whether the step was finished with these inputs."""
        return self.is_begun(name) and "result" in self._stamp(name)

    def is_begun(self, name: str) -> bool:
        """Whether the last run of the step had these inputs."""
        return self._stamp(name).get("key") == self._keys[name]

    def was_run(self, name: str) -> bool:
        """Whether the step was begun at any time, with whatever inputs."""
        return bool(self._stamp(name))

    def forget(self, name: str) -> None:
        """Have the step run again."""
        remove(self._path(name))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _stamp(self, name: str) -> dict[str, Any]:
        """The stamp; {} where there is none, or one that is damaged."""
        try:
            value = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def _write(self, name: str, value: dict[str, Any]) -> None:
        write_result(self._path(name), json.dumps(value, indent=1).encode())


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

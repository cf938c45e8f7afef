"""Processes that measure, and the order they are asked in."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.report import ROOT
from data.errors import UserError

QUIT_SECONDS = 30.0  # a process that has nothing left to do and does not end by then is ended

Answer = dict[str, Any]


class Worker:
    """A process that runs `benchmarks.serve`; use it as a context manager."""

    def __init__(
        self, label: str, command: Sequence[str], environment: Mapping[str, str], errors: Path, folder: Path = ROOT
    ) -> None:
        """Start `command` in a folder and wait until it is ready; raises UserError if it ends instead.

        Its stderr goes to the file `errors`.
        """
        self._label = label
        self._errors = errors
        pipe = subprocess.PIPE
        try:
            with errors.open("wb") as file:
                self._process = subprocess.Popen(
                    command, cwd=folder, env=dict(environment), stdin=pipe, stdout=pipe, stderr=file, text=True
                )
        except OSError as error:
            raise UserError(f"{label}: {command[0]} cannot be started ({error.strerror})") from error
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):  # it ended with a command unread
            self._process.stdin.close()
        try:
            self._process.wait(QUIT_SECONDS if error is None else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, *command: str) -> Answer:
        """The answer to `command`; raises UserError, with the process's last words, where it ends instead."""
        with contextlib.suppress(BrokenPipeError):  # _answer tells what happened
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Answer:
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        words = self._errors.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise UserError(f"{self._label} ended with status {status}: {words[-1]}")


def alternate(workers: Mapping[str, Worker], command: str, warm_up: int, count: int) -> dict[str, list[Answer]]:
    """Ask all workers in turn, A B A B ..., so that whatever else the machine does meets all of them alike.

    Returns the answers of each, `warm_up` + `count` of them in order.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in workers}
    for _ in range(warm_up + count):
        for name, worker in workers.items():
            answers[name].append(worker.ask(command))
    return answers

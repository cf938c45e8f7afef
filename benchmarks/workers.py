"""Processes that measure, and the order they are asked in."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from benchmarks.shapes import ROOT
from data.errors import UserError

QUIT_SECONDS = 30.0  # a process that has nothing left to do and does not end by then is ended

Answer = dict[str, Any]


class Answers(Protocol):
    """A worker process that answers commands."""

    def ask(self, *command: str) -> Answer:
        """The answer to one command."""


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

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The process stands still within, with all its threads: some libraries' spin for a while after their work."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # it stops a little later
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _answer(self) -> Answer:
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        words = self._errors.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise UserError(f"{self._label} ended with status {status}: {words[-1]}")


class Alone:
    """A worker whose commands run while the others stand still."""

    def __init__(self, worker: Worker, others: Sequence[Worker]) -> None:
        self._worker = worker
        self._others = tuple(others)

    def ask(self, *command: str) -> Answer:
        """The answer to one command."""
        with contextlib.ExitStack() as stack:
            for other in self._others:
                stack.enter_context(other.paused())
            return self._worker.ask(*command)


def alternate(workers: Mapping[str, Answers], command: str, warm_up: int, count: int) -> dict[str, list[Answer]]:
    """Ask all workers in turn, A B A B ..., so that whatever else the machine does meets all of them alike.

    Returns the answers of each, `warm_up` + `count` of them in order.
    """
    answers: dict[str, list[Answer]] = {name: [] for name in workers}
    for _ in range(warm_up + count):
        for name, worker in workers.items():
            answers[name].append(worker.ask(command))
    return answers

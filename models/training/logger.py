"""What a run says: on the terminal, in `logs/train.log`, and to TensorBoard. The only place under models/ that prints.

Nothing in here may stop a training: a full disk or a closed terminal costs one warning and that part of the log.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tqdm import tqdm

from data.errors import one_line
from data.files import make_folder, open_regular

LOG_FOLDER, TEXT_LOG = "logs", "train.log"
# Between two states of a progress bar: what the eye follows on a terminal, what is worth a line in a file.
TERMINAL_SECONDS, FILE_SECONDS = 0.1, 10.0
FLUSH_SECONDS = 10.0  # a TensorBoard page is at most this far behind; a flush waits for the disk


def say(text: str) -> None:
    """Print `text` on stdout, above any progress bar; a closed terminal is no error."""
    _print(text, sys.stdout)


def complain(text: str) -> None:
    """Print `text` as one line on stderr, above any progress bar; a closed terminal is no error."""
    _print(one_line(text), sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    """Print `text`; a character that `stream` cannot show is spelt out."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError):
        tqdm.write(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def _is_terminal(stream: TextIO) -> bool:
    """Whether someone may be watching; not where the stream is closed."""
    with contextlib.suppress(OSError, ValueError):
        return stream.isatty()
    return False


class RunLogger:
    """The log of one run in `<folder>/logs`, the folder the published code logs to (exp_runner.py, commit 6e0a230).

    Files are opened when first written to, and never overwritten: the text log is appended to, TensorBoard gets a
    further event file. Use it as a context manager, or call `close`.
    """

    def __init__(self, folder: Path, quiet: bool = False, resumed_at: int | None = None) -> None:
        """Log to `folder`; `quiet` keeps `info` and progress bars off the terminal.

        `resumed_at` is the step a resumed run goes on from: TensorBoard drops what an earlier run logged from there on.
        """
        self._logs = folder / LOG_FOLDER
        self._quiet = quiet
        self._resumed_at = resumed_at
        self._events: EventsWriter | None = None
        self._next_flush = 0.0
        self._failed: set[str] = set()  # the parts of the log that gave up

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def info(self, text: str) -> None:
        """Say `text` on stdout (unless quiet) and in the text log."""
        if not self._quiet:
            say(text)
        self._append("INFO", text)

    def note(self, text: str) -> None:
        """Write `text` to the text log only: what a progress bar shows already."""
        self._append("INFO", text)

    def warn(self, text: str) -> None:
        """Say `text` on stderr and in the text log."""
        complain(f"Warning: {text}")
        self._append("WARNING", text)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Give TensorBoard the numbers of one step; keys are tags such as 'Loss/loss'."""
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=float(value)) for tag, value in values.items()])
        self._attempt(
            "TensorBoard", lambda: self._write_event(Event(wall_time=time.time(), step=step, summary=summary))
        )

    def progress(self, iterable_or_total: Iterable[Any] | int, **options: Any) -> tqdm:
        """A progress bar over an iterable, or up to a total (then call its `update`); `options` are tqdm's."""
        seconds = TERMINAL_SECONDS if _is_terminal(sys.stderr) else FILE_SECONDS
        options = {"disable": self._quiet, "dynamic_ncols": True, "mininterval": seconds, **options}
        if isinstance(iterable_or_total, int):
            return _Bar(total=iterable_or_total, **options)
        return _Bar(iterable_or_total, **options)

    def close(self) -> None:
        """Write out what is pending; further calls do nothing."""
        events, self._events = self._events, None
        if events is not None:
            self._attempt("TensorBoard", events.close)

    def _append(self, level: str, text: str) -> None:
        """Add `text` to the text log, each of its lines with time and level."""
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        lines = "".join(f"{stamp} {level} {line}\n" for line in text.splitlines())
        self._attempt("text", lambda: self._append_lines(lines))

    def _make_folder(self) -> None:
        """Raises OSError where the folder cannot be made, or is a link."""
        make_folder(self._logs.parent, self._logs.name)

    def _append_lines(self, lines: str) -> None:
        self._make_folder()
        descriptor = open_regular(self._logs / TEXT_LOG, os.O_WRONLY | os.O_APPEND)
        with open(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(lines)

    def _write_event(self, event: Event) -> None:
        """Add `event` to the event file, which is opened for the first one."""
        if self._events is None:
            self._events = self._open_events()
        self._events.write_event(event)
        if time.monotonic() >= self._next_flush:
            self._events.flush()
            self._next_flush = time.monotonic() + FLUSH_SECONDS

    def _open_events(self) -> EventsWriter:
        """A new event file.

        It is written by this thread: tensorboardX's SummaryWriter hands events to another one through a bounded queue,
        and where that one dies of a full disk the next `add_scalar` waits for ever.
        """
        self._make_folder()
        # The writer itself names files by the second and would overwrite one of the same second.
        events = EventsWriter(str(self._logs / "events"), filename_suffix=f".{os.getpid()}.{time.time_ns()}")
        if self._resumed_at is not None:
            start = SessionLog(status=SessionLog.START)
            events.write_event(Event(wall_time=time.time(), step=self._resumed_at, session_log=start))
        return events

    def _attempt(self, part: str, write: Callable[[], object]) -> None:
        """Call `write` unless `part` of the log has failed before; a failure is told once and ends that part."""
        if part in self._failed:
            return
        try:
            write()
        except OSError as error:
            self._failed.add(part)
            complain(f"Warning: the {part} log in {self._logs} stops here ({error.strerror or error}).")


class _Bar(tqdm):
    """A bar that vanishes where its terminal does."""

    def display(self, *arguments: Any, **options: Any) -> bool | None:
        """Draw; where that fails, never again."""
        try:
            return super().display(*arguments, **options)
        except OSError:
            self.disable = True
            return None

    def close(self) -> None:
        """Finish the bar's line, if there is still a terminal."""
        with contextlib.suppress(OSError):
            super().close()

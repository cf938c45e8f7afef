"""The log of a run: terminal, `logs/train.log` and TensorBoard.

No error of a log stops a training: a full disk or a closed terminal causes one warning, and that part of the log ends.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from data.errors import UserError, is_allocation_failure, one_line
from data.io.bars import Bar
from data.io.files import make_folder, open_regular, read_regular
from data.io.streams import complain, is_terminal, say

LOG_FOLDER, TEXT_LOG = "logs", "train.log"
CELLS = "models.estimators.schedule"  # the name under which large changes of the cells are logged
PSNR = ", batch PSNR "  # precedes the value in a log line
TEXT, TENSORBOARD = "text", "TensorBoard"  # parts of a log
# Seconds between updates of a progress bar on a terminal, and between lines in a file.
TERMINAL_SECONDS, FILE_SECONDS = 0.1, 10.0
LOGGED_WARNINGS = 100  # number of warnings kept
FLUSH_SECONDS = 10.0  # maximum delay of TensorBoard; a flush waits for the disk

Result = TypeVar("Result")


class RunLogger(AbstractContextManager):
    """The log of one run in `<folder>/logs`, the folder of the published code (exp_runner.py, commit 6e0a230).

    Files are opened at the first write and never overwritten: the text log is appended to, TensorBoard gets another
    event file. Use it as a context manager, or call `close`.
    """

    def __init__(
        self, folder: Path, quiet: bool = False, resumed_at: int | None = None, is_written: bool = True
    ) -> None:
        """`quiet` suppresses `info` and progress bars on the terminal; without `is_written` no files are written.

        `resumed_at` is the step from which a run resumes: TensorBoard discards what an earlier run logged after it.
        """
        self._logs = folder / LOG_FOLDER
        self._quiet = quiet
        self._resumed_at = resumed_at
        self._events: EventsWriter | None = None
        self._next_flush = 0.0
        self._failed = set() if is_written else {TEXT, TENSORBOARD}  # parts of the log that failed
        self.warnings: list[str] = []  # the newest ones
        self._unwritten: set[str] = set()  # kinds of results that were reported as not written

    def __enter__(self) -> RunLogger:
        logger, handler = logging.getLogger(CELLS), logging.Handler(logging.INFO)
        handler.emit = lambda record: self.info(record.getMessage())  # type: ignore[method-assign]
        logger.setLevel(logging.INFO)
        logger.handlers = [handler]
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(CELLS).handlers = []
        self.close()

    def info(self, *lines: str) -> None:
        """Write `lines` to stdout (unless quiet) and to the text log."""
        if not self._quiet:
            say(*lines)
        self._append("INFO", *lines)

    def note(self, text: str) -> None:
        """Write `text` to the text log only, if a progress bar shows it already."""
        self._append("INFO", text)

    def warn(self, text: str) -> None:
        """Write `text` to stderr and to the text log."""
        complain(f"Warning: {text}")
        self.keep(text)

    def keep(self, text: str) -> None:
        """Add `text`, which was already printed to stderr, to the warnings of the text log and the report."""
        self.warnings = [*self.warnings[1 - LOGGED_WARNINGS :], text]
        self._append("WARNING", text)

    def unless_it_fails(self, step: int, what: str, write: Callable[[], Result]) -> Result | None:
        """Write an optional result; on failure the training continues, and each kind is reported once."""
        try:
            return write()
        except (UserError, OSError, MemoryError, RuntimeError) as error:
            if is_allocation_failure(error):
                from models.machine import memory  # imports Jittor, which has been loaded then

                memory.release_after_failure(error)
            elif isinstance(error, RuntimeError):
                raise
            if what not in self._unwritten:
                self._unwritten.add(what)
                self.warn(f"step {step}: {what} could not be written; the training continues: {error}")
        return None

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Write scalars of one step to TensorBoard; keys are tags such as 'Loss/loss'."""
        named = [Summary.Value(tag=one_line(tag), simple_value=float(value)) for tag, value in values.items()]
        summary = Summary(value=named)
        self._attempt(TENSORBOARD, lambda: self._write_event(Event(wall_time=time.time(), step=step, summary=summary)))

    def progress(self, iterable_or_total: Iterable[Any] | int, **options: Any) -> Bar:
        """A progress bar over an iterable, or up to a total (then call its `update`); `options` are those of tqdm.

        A transient bar (`leave=False`) is not drawn if the output is a file.
        """
        is_vain = not is_terminal() and not options.get("leave", True) and "file" not in options
        seconds = TERMINAL_SECONDS if is_terminal() else FILE_SECONDS
        options = {"disable": self._quiet or is_vain, "dynamic_ncols": True, "mininterval": seconds, **options}
        if isinstance(iterable_or_total, int):
            return Bar(total=iterable_or_total, **options)
        return Bar(iterable_or_total, **options)

    def close(self) -> None:
        """Write pending data; further calls do nothing."""
        events, self._events = self._events, None
        if events is not None:
            self._attempt(TENSORBOARD, events.close)

    def _append(self, level: str, *texts: str) -> None:
        """Append each of `texts` to the text log as one line with time and level."""
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        lines = "".join(f"{stamp} {level} {one_line(text)}\n" for text in texts)
        self._attempt(TEXT, lambda: self._append_lines(lines))

    def _make_folder(self) -> None:
        """Raises OSError if the folder cannot be created or is a link."""
        make_folder(self._logs.parent, self._logs.name)

    def _append_lines(self, lines: str) -> None:
        self._make_folder()
        descriptor = open_regular(self._logs / TEXT_LOG, os.O_WRONLY | os.O_APPEND)
        with open(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(lines)

    def _write_event(self, event: Event) -> None:
        """Add `event` to the event file, which is opened for the first event."""
        if self._events is None:
            self._events = self._open_events()
        self._events.write_event(event)
        if time.monotonic() >= self._next_flush:
            self._events.flush()
            self._next_flush = time.monotonic() + FLUSH_SECONDS

    def _open_events(self) -> EventsWriter:
        """Open a new event file, written by this thread.

        The SummaryWriter of tensorboardX passes events to another thread through a bounded queue. If that thread dies
        because the disk is full, the next `add_scalar` blocks forever.
        """
        self._make_folder()
        # The writer names files by the second and would overwrite a file of the same second.
        events = EventsWriter(str(self._logs / "events"), filename_suffix=f".{os.getpid()}.{time.time_ns()}")
        if self._resumed_at is not None:
            start = SessionLog(status=SessionLog.START)
            events.write_event(Event(wall_time=time.time(), step=self._resumed_at, session_log=start))
        return events

    def _attempt(self, part: str, write: Callable[[], object]) -> None:
        """Call `write` unless `part` of the log has failed before; a failure is reported once and ends that part."""
        if part in self._failed:
            return
        try:
            write()
        except OSError as error:
            self._failed.add(part)
            reason = error.strerror or error
            complain(f"Warning: the {part} log in {self._logs} cannot be written ({reason}); nothing more is added.")


class Speed:
    """Batch entries per second between reports."""

    def __init__(self) -> None:
        self._rays, self._time = 0, time.perf_counter()

    def count(self, rays: int) -> None:
        """Count the entries of a step."""
        self._rays += rays

    def since_last(self) -> float:
        """Entries per second since the last call."""
        now = time.perf_counter()
        speed = self._rays / (now - self._time)
        self._rays, self._time = 0, now
        return speed


def last_psnr(folder: Path) -> str:
    """The last PSNR in the log of a training; "-" if there is none."""
    try:
        lines = read_regular(folder / LOG_FOLDER / TEXT_LOG).decode("utf-8", "replace").splitlines()
    except OSError:
        return "-"
    return next((line.partition(PSNR)[2].partition(",")[0] for line in reversed(lines) if PSNR in line), "-")

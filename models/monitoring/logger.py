"""What a run says: on the terminal, in `logs/train.log`, and to TensorBoard.

Nothing in here may stop a training: a full disk or a closed terminal costs one warning and that part of the log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from data.errors import one_line
from data.io.bars import Bar
from data.io.files import make_folder, open_regular
from data.io.streams import complain, is_watched, say

LOG_FOLDER, TEXT_LOG = "logs", "train.log"
TEXT, TENSORBOARD = "text", "TensorBoard"  # the parts of a log
# Between two states of a progress bar: what the eye follows on a terminal, what is worth a line in a file.
TERMINAL_SECONDS, FILE_SECONDS = 0.1, 10.0
MOST_WARNINGS = 100  # that are remembered
FLUSH_SECONDS = 10.0  # a TensorBoard page is at most this far behind; a flush waits for the disk


class RunLogger(AbstractContextManager):
    """The log of one run in `<folder>/logs`, the folder the published code logs to (exp_runner.py, commit 6e0a230).

    Files are opened when first written to, and never overwritten: the text log is appended to, TensorBoard gets a
    further event file. Use it as a context manager, or call `close`.
    """

    def __init__(
        self, folder: Path, quiet: bool = False, resumed_at: int | None = None, is_written: bool = True
    ) -> None:
        """Log to `folder`; `quiet` keeps `info` and progress bars off the terminal, `is_written` says all the rest.

        `resumed_at` is the step a resumed run goes on from: TensorBoard drops what an earlier run logged from there on.
        """
        self._logs = folder / LOG_FOLDER
        self._quiet = quiet
        self._resumed_at = resumed_at
        self._events: EventsWriter | None = None
        self._next_flush = 0.0
        self._failed = set() if is_written else {TEXT, TENSORBOARD}  # the parts of the log that gave up
        self.warnings: list[str] = []  # the newest that were told

    def __exit__(self, *_: object) -> None:
        self.close()

    def info(self, *lines: str) -> None:
        """Say each of `lines` on stdout (unless quiet) and in the text log."""
        if not self._quiet:
            say(*lines)
        self._append("INFO", *lines)

    def note(self, text: str) -> None:
        """Write `text` to the text log only: what a progress bar shows already."""
        self._append("INFO", text)

    def warn(self, text: str) -> None:
        """Say `text` on stderr and in the text log."""
        complain(f"Warning: {text}")
        self.keep(text)

    def keep(self, text: str) -> None:
        """Have `text` among the warnings of the text log and the report: what is said on stderr by other means."""
        self.warnings = [*self.warnings[1 - MOST_WARNINGS :], text]
        self._append("WARNING", text)

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Give TensorBoard the numbers of one step; keys are tags such as 'Loss/loss'."""
        named = [Summary.Value(tag=one_line(tag), simple_value=float(value)) for tag, value in values.items()]
        summary = Summary(value=named)
        self._attempt(TENSORBOARD, lambda: self._write_event(Event(wall_time=time.time(), step=step, summary=summary)))

    def progress(self, iterable_or_total: Iterable[Any] | int, **options: Any) -> Bar:
        """A progress bar over an iterable, or up to a total (then call its `update`); `options` are tqdm's.

        One that is to vanish at its end (`leave=False`) is not drawn into a file, where nothing vanishes.
        """
        is_vain = not is_watched() and not options.get("leave", True) and "file" not in options
        seconds = TERMINAL_SECONDS if is_watched() else FILE_SECONDS
        options = {"disable": self._quiet or is_vain, "dynamic_ncols": True, "mininterval": seconds, **options}
        if isinstance(iterable_or_total, int):
            return Bar(total=iterable_or_total, **options)
        return Bar(iterable_or_total, **options)

    def close(self) -> None:
        """Write out what is pending; further calls do nothing."""
        events, self._events = self._events, None
        if events is not None:
            self._attempt(TENSORBOARD, events.close)

    def _append(self, level: str, *texts: str) -> None:
        """Add `texts` to the text log, each as one line with time and level, whatever they hold."""
        stamp = datetime.now().astimezone().isoformat(timespec="seconds")
        lines = "".join(f"{stamp} {level} {one_line(text)}\n" for text in texts)
        self._attempt(TEXT, lambda: self._append_lines(lines))

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

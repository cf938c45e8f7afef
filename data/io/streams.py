"""What this process prints and hears: each text as one printable line, silent libraries, a Ctrl-C that is not lost.

Output never raises: if a stream is closed, full or disconnected, the text is dropped. libpng and libjpeg write to the
process's stderr; Python libraries emit warnings and log records. A Ctrl-C that arrives while Python deletes an object
is an exception that Python prints and drops.
"""

from __future__ import annotations

import _thread
import contextlib
import io
import logging
import os
import select
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from data.errors import one_line

STDIN, STDOUT, STDERR = 0, 1, 2  # file descriptors; C libraries write to the last
PATIENCE_SECONDS = 1.0  # to wait for a non-blocking stream; then the text is dropped
OPENCV_QUIET = {"OPENCV_LOG_LEVEL": "SILENT", "OPENCV_FFMPEG_LOGLEVEL": "-8"}  # -8: AV_LOG_QUIET
# Prefixes of environment variables that libraries read when they are loaded: invalid values end the process, others
# lower the limit on image sizes below that of this program.
FORGOTTEN = ("TQDM_", "OPENCV_", "NUMPY_", "NPY_PROMOTION_STATE", "PROTOCOL_BUFFERS_")
AGAIN_AFTER = 0.05  # seconds; by then the object is deleted

_is_hushed = False
_sink: Callable[[str], object] | None = None  # what gets the lines instead of the terminal
_last_complaint = ""


def secure() -> None:
    """Replace the three standard streams by ones that never fail, and open closed descriptors on /dev/null.

    Otherwise the next opened file, such as a checkpoint, would get the number of a closed descriptor and be printed
    into. Must be called once, at the start of a process, before any file is opened.
    """
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number, which is this
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", closefd=False)  # noqa: SIM115 (for the whole process)
        vars(sys)["__stdin__"] = sys.stdin
    sys.stdout, sys.stderr = _lasting(STDOUT, sys.stdout), _lasting(STDERR, sys.stderr)
    vars(sys).update(__stdout__=sys.stdout, __stderr__=sys.stderr)  # declared final, as a rule rightly


def say(*lines: str) -> None:
    """Print each of `lines` as one line on stdout, above any progress bar."""
    _print(lines, sys.stdout)


def complain(*lines: str) -> None:
    """Print each of `lines` as one line on stderr, above any progress bar."""
    global _last_complaint
    _last_complaint = lines[-1] if lines else ""
    _print(lines, sys.stderr)


@contextlib.contextmanager
def telling(sink: Callable[[str], object]) -> Iterator[None]:
    """In the body, `sink` gets each line that would be printed; with `say`, lines and bars are on the terminal.

    So do warnings that `models` logs, as the core does, which does not print.
    """
    global _sink
    before, _sink = _sink, sink
    logger, handler = logging.getLogger("models"), logging.Handler(logging.WARNING)
    handler.emit = lambda record: complain(f"Warning: {record.getMessage()}")  # type: ignore[method-assign]
    outer, logger.handlers = logger.handlers, [handler]
    try:
        yield
    finally:
        _sink, logger.handlers = before, outer


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """In the body, nothing is printed, unless it runs in that of `telling`."""
    with telling((lambda line: None) if _sink is None else _sink):
        yield


def is_visible() -> bool:
    """Whether lines and progress bars are on the terminal."""
    return not _is_hushed and _sink in (None, say)


def redraw(text: str, end: str = "") -> None:
    """Print `text` on stderr over the current line."""
    if not is_visible():
        return
    _write(f"\r{one_line(text)}{end}", sys.stderr)


def report_crash() -> None:
    """Print the exception being handled with its traceback on stderr."""
    complain(*traceback.format_exc().rstrip("\n").split("\n"))


def is_terminal() -> bool:
    """Whether stderr is a terminal."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or missing
        return sys.stderr.isatty()
    return False


def hush(is_hushed: bool = True) -> None:
    """Switch printing off (or on again): of several processes only one prints."""
    global _is_hushed
    _is_hushed = is_hushed


def last_complaint() -> str:
    """The last message of `complain`, printed or not; "" for none."""
    return _last_complaint


def _print(lines: tuple[str, ...], stream: TextIO | None) -> None:
    if _is_hushed:
        return
    if _sink not in (None, say):
        for line in lines:
            _sink(one_line(line))
        return
    bars = getattr(sys.modules.get("tqdm"), "tqdm", None)  # None also while another thread imports it
    with bars.external_write_mode(file=stream) if bars and stream else contextlib.nullcontext():
        _write("".join(f"{one_line(line)}\n" for line in lines), stream)


def _write(text: str, stream: TextIO | None) -> None:
    """Write `text`, whose only control characters are line ends; characters `stream` cannot encode are escaped."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with contextlib.suppress(OSError, ValueError):  # ValueError: closed stream or encoding error
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _lasting(descriptor: int, before: TextIO | None) -> TextIO:
    """A text stream on `descriptor` that never fails, in the encoding of `before`."""
    return io.TextIOWrapper(
        io.BufferedWriter(_Lasting(descriptor)),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


class _Lasting(io.RawIOBase):
    """Writes to a descriptor and drops what cannot be written, so that no later flush fails."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.name = f"<descriptor {descriptor}>"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        with contextlib.suppress(OSError):
            return os.isatty(self._descriptor)
        return False

    def write(self, data: Any) -> int:
        """Write a buffer of bytes; returns its size even if bytes were dropped."""
        view = memoryview(data).cast("B")
        size = len(view)
        with contextlib.suppress(OSError):
            while len(view):
                try:
                    view = view[os.write(self._descriptor, view) :]
                except BlockingIOError:
                    if not select.select([], [self._descriptor], [], PATIENCE_SECONDS)[1]:
                        break
        return size


def silence_libraries() -> None:
    """Hide Python's warnings and log records and OpenCV's messages in this process.

    Warnings requested by `python -W` or PYTHONWARNINGS are shown. Must be called before OpenCV is loaded.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())  # without a handler, logged warnings go to stderr
    for name, value in OPENCV_QUIET.items():
        os.environ.setdefault(name, value)


def forget_library_variables() -> None:
    """Delete environment variables that configure libraries, for this process and its children.

    Must be called before the libraries are loaded.
    """
    for name in [name for name in os.environ if name.startswith(FORGOTTEN) and name not in OPENCV_QUIET]:
        del os.environ[name]


@contextlib.contextmanager
def native_stderr_silenced() -> Iterator[None]:
    """Discard output to file descriptor 2 while the body runs.

    The descriptor belongs to the whole process: keep the body short. A closed descriptor is left alone.
    """
    try:
        backup = os.dup(STDERR)
    except OSError:
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, STDERR)
        os.close(sink)
        yield
    finally:
        os.dup2(backup, STDERR)
        os.close(backup)


def keep_interruptions() -> None:
    """Install a hook that raises such an interruption again after AGAIN_AFTER seconds. The command line calls it."""
    before = sys.unraisablehook

    def on_unraisable(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        again = threading.Timer(AGAIN_AFTER, _thread.interrupt_main)
        again.daemon = True
        again.start()

    sys.unraisablehook = on_unraisable

"""What this process says and hears: silent libraries, and a Ctrl-C that is not lost.

libpng and libjpeg write to the process's stderr; Python libraries emit warnings and log records. A Ctrl-C that arrives
while Python deletes an object is an exception that Python prints and drops.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

STDERR = 2  # the file descriptor that C libraries write to
OPENCV_QUIET = {"OPENCV_LOG_LEVEL": "SILENT", "OPENCV_FFMPEG_LOGLEVEL": "-8"}  # -8: AV_LOG_QUIET
# Prefixes of environment variables that libraries read when they are loaded: invalid values end the process, others
# lower the limit on image sizes below that of this program.
FORGOTTEN = ("TQDM_", "OPENCV_", "NUMPY_", "NPY_PROMOTION_STATE", "PROTOCOL_BUFFERS_")
AGAIN_AFTER = 0.05  # seconds; by then the object is deleted


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
        kept = os.dup(STDERR)
    except OSError:
        yield
        return
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, STDERR)
        os.close(sink)
        yield
    finally:
        os.dup2(kept, STDERR)
        os.close(kept)


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

"""Keeping libraries off the terminal: what there is to say, the program says itself, in one sentence.

libpng and libjpeg write to the process's stderr, Python's libraries warn and log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator

STDERR = 2  # the file descriptor C libraries write to, whatever sys.stderr is
OPENCV_QUIET = {"OPENCV_LOG_LEVEL": "SILENT", "OPENCV_FFMPEG_LOGLEVEL": "-8"}  # -8: AV_LOG_QUIET
# Names of variables that libraries read as they are loaded, and end the process over what they do not understand; or
# that lower a bound on the size of images below the program's own.
FORGOTTEN = ("TQDM_", "OPENCV_", "NUMPY_", "NPY_PROMOTION_STATE", "PROTOCOL_BUFFERS_")


def silence_libraries() -> None:
    """For this process: neither Python's warnings and log records nor OpenCV's messages on the terminal.

    Warnings that `python -W` or PYTHONWARNINGS asks for are shown. To be called before OpenCV is loaded.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())  # else records of warnings go to stderr
    for name, value in OPENCV_QUIET.items():
        os.environ.setdefault(name, value)


def forget_library_variables() -> None:
    """For this process and those that it starts: settings of libraries by the environment count for nothing.

    To be called before the libraries are loaded.
    """
    for name in [name for name in os.environ if name.startswith(FORGOTTEN) and name not in OPENCV_QUIET]:
        del os.environ[name]


@contextlib.contextmanager
def native_stderr_silenced() -> Iterator[None]:
    """While the body runs, what is written to file descriptor 2 is dropped.

    The descriptor belongs to the whole process: keep the body short. Where it is closed, nothing happens.
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

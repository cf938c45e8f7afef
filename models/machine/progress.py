"""Messages while Jittor is imported and compiles itself, which takes a minute or two; its compilers are ended."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.io.streams import complain, is_watched, redraw

# The number of object files of Jittor's core (1.3.11, CPU), for the progress line.
CORE_OBJECT_FILES = 150
INTERVAL_SECONDS = 2.0
OWN = "Jittor compiles itself; this happens once, and takes a minute or two."
OTHERS = "another process compiles Jittor, which this one waits for; this happens once, and takes a minute or two."


@dataclass(frozen=True)
class Word:
    """A progress message."""

    text: str
    is_passing: bool = False  # shown on a terminal only, where the next message overwrites it
    is_last: bool = False  # on a terminal, overwrites a passing one


def show(word: Word) -> None:
    """Print the message on stderr."""
    if is_watched() and (word.is_passing or word.is_last):
        redraw(word.text, end="\n" if word.is_last else "")
    elif not word.is_passing:
        complain(word.text)


_tell: Callable[[Word], None] = show


def hand_on(tell: Callable[[Word], None]) -> None:
    """Pass all later messages of this process to `tell` instead of stderr; for child processes."""
    global _tell
    _tell = tell


@contextlib.contextmanager
def compile_progress(caches: Callable[[], Sequence[Path]]) -> Iterator[None]:
    """Print progress on stderr if Jittor compiles itself while the body runs.

    `caches` returns the folders into which Jittor may compile; it is called repeatedly.
    """
    done = threading.Event()
    thread = threading.Thread(target=_report, args=(done, caches), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _report(done: threading.Event, caches: Callable[[], Sequence[Path]]) -> None:
    """Body of the progress thread; prints nothing if nothing is compiled."""
    begin, spoke = time.time(), False
    while not done.wait(INTERVAL_SECONDS):
        elapsed, count = time.time() - begin, _fresh_object_files(caches(), begin)
        if count == 0:
            continue
        if not spoke:
            _tell(Word(OWN if _is_own() else OTHERS))
        _tell(Word(f"  {min(count, CORE_OBJECT_FILES)}/{CORE_OBJECT_FILES} files, {elapsed:.0f} s ", is_passing=True))
        spoke = True
    if spoke:
        _tell(Word(f"  compiled in {time.time() - begin:.0f} s", is_last=True))


def _is_own() -> bool:
    """Whether this process compiles: it holds the lock of Jittor's cache, or has not imported it, for a child does."""
    locks = sys.modules.get("jittor_utils.lock")
    return locks is None or locks.jittor_lock.is_locked


def _fresh_object_files(caches: Sequence[Path], since: float) -> int:
    """The number of object files in the caches that are newer than `since` (seconds of the epoch)."""
    folders = [folder for folder in (cache / "obj_files" for cache in caches) if folder.is_dir()]
    return sum(1 for folder in folders for entry in os.scandir(folder) if entry.stat().st_mtime >= since)


def end_compilers() -> None:
    """End the processes in which Jittor compiled itself: they stay, and each would report a later Ctrl-C."""
    import jittor_utils

    if jittor_utils.pool_size > 0:
        atexit.unregister(jittor_utils.pool_cleanup)
        jittor_utils.pool_cleanup()
        jittor_utils.pool_size = 0  # Jittor starts others if it needs them

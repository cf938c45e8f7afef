"""Word of Jittor's compiling itself, which takes minutes and would be silent."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.io.streams import complain, is_watched, redraw

# A build of Jittor's core leaves this many object files (1.3.11, CPU): the whole of the progress line.
CORE_OBJECT_FILES = 150
INTERVAL_SECONDS = 2.0


@dataclass(frozen=True)
class Word:
    """What is said of progress."""

    text: str
    is_passing: bool = False  # for a terminal only, over the word before
    is_last: bool = False  # on a terminal over the passing ones


def show(word: Word) -> None:
    """Say it on stderr."""
    if is_watched() and (word.is_passing or word.is_last):
        redraw(word.text, end="\n" if word.is_last else "")
    elif not word.is_passing:
        complain(word.text)


_tell = show


def hand_on(tell: Callable[[Word], None]) -> None:
    """From now on `tell` hears what this process, whose stderr nobody reads, would say."""
    global _tell
    _tell = tell


@contextlib.contextmanager
def compile_progress(caches: Callable[[], Sequence[Path]]) -> Iterator[None]:
    """While the body runs: if it takes long, say on stderr that Jittor compiles itself once, and how far it is.

    `caches` tells in which folders it does so; asked again and again.
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
    """Body of the progress thread: silent for a warm start."""
    begin, spoke = time.time(), False
    while not done.wait(INTERVAL_SECONDS):
        elapsed, count = time.time() - begin, _fresh_object_files(caches(), begin)
        if count == 0:
            continue
        if not spoke:
            _tell(Word("Jittor compiles itself; this happens once, and takes a minute or two."))
        _tell(Word(f"  {min(count, CORE_OBJECT_FILES)}/{CORE_OBJECT_FILES} files, {elapsed:.0f} s ", is_passing=True))
        spoke = True
    if spoke:
        _tell(Word(f"  compiled in {time.time() - begin:.0f} s", is_last=True))


def _fresh_object_files(caches: Sequence[Path], since: float) -> int:
    """How many object files the caches gained since `since` (seconds of the epoch)."""
    folders = [folder for folder in (cache / "obj_files" for cache in caches) if folder.is_dir()]
    return sum(1 for folder in folders for entry in os.scandir(folder) if entry.stat().st_mtime >= since)

"""The error class for mistakes of the user, and functions that build its messages."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence

LONGEST_SENTENCE = 2000  # characters; room for two paths of the maximum length
LONGEST_REASON = 200  # characters of a library's message, which may quote a whole file
FIRST_LINES, LAST_LINES = 200, 40  # of a crash report: its cause is at the beginning
MOST_LISTED = 5  # names in a message; further names are counted
# Exceptions for a decoded value, such as one of JSON, that has other types, keys or sizes than it must have.
INVALID = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
# Texts with which Jittor, CUDA and the C++ library report that memory ran out.
FAILURE_TEXTS: tuple[str, ...] = ("out of memory", "memoryallocation", "bad_alloc", "cannot allocate memory")
FAILURE_TEXTS += ("unable to alloc", "memory is overflow")  # the last is of Jittor, if its pool holds nearly all
# The same while a library is loaded or a thread is started.
FAILURE_TEXTS += ("failed to map segment", "resource temporarily unavailable", "can't start new thread")


class UserError(Exception):
    """A mistake of the user, in one sentence: what is wrong, in which file, key or value, and how to fix it.

    The command line prints the sentence without a traceback and exits with status 2.
    """


class SceneError(UserError):
    """A scene that cannot be used; the message names the file, key or view and the fix."""


class DamagedError(Exception):
    """Content that a library cannot read; the text is a clause that says why."""


@contextlib.contextmanager
def read_by_library() -> Iterator[None]:
    """In the body, whatever a library raises for an untrusted file becomes DamagedError, and its warnings are ignored.

    A UserError is raised as it is.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (UserError, DamagedError):
        raise
    except Exception as error:  # noqa: BLE001 (a damaged file may raise anything in a library, failed assertions too)
        raise DamagedError(reason(error)) from error


def one_line(text: str) -> str:
    """`text` as one line for a terminal: characters that do not print, such as line breaks and escape sequences, are
    replaced by their escapes, and the middle of a long text is cut out.
    """
    spelt = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    half = LONGEST_SENTENCE // 2  # quoted text is in the middle of a message
    return spelt if len(spelt) <= LONGEST_SENTENCE else f"{spelt[:half]}...{spelt[-half:]}"


def _text(value: object) -> str:
    """`str(value)`; "" if that fails, as it may for an exception of the user."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 (code of the user)
        return ""


def reason(error: BaseException) -> str:
    """The message of a library's exception on one line; the name of its class if it has no message."""
    text = _text(error.args[0] if isinstance(error, KeyError) and error.args else error)
    return " ".join(text.split())[:LONGEST_REASON] or type(error).__name__


def crash_report(output: str) -> list[str]:
    """The lines that a crashed process printed; if they are many, the first FIRST_LINES and the last LAST_LINES."""
    lines = output.rstrip().splitlines()
    left_out = max(0, len(lines) - FIRST_LINES - LAST_LINES)
    note = [f"[{left_out} lines left out]"] if left_out else []
    return [*lines[:FIRST_LINES], *note, *lines[FIRST_LINES + left_out :]]


def listed(words: Sequence[str], most: int = MOST_LISTED) -> str:
    """`a`, `a and b`, `a, b and c`; for more than `most` words `a, b and 7 more`; "" for none."""
    parts = [*words[:most], f"{len(words) - most} more"] if len(words) > most else words
    return " and ".join([part for part in (", ".join(parts[:-1]), *parts[-1:]) if part])


def listed_views(views: Iterable[int], names: Sequence[str] = ()) -> str:
    """`view 3`, `views 1, 2 and 7`, `views 0, 1, 2, 3, 4 and 12 more`; with the `names` of all views, names too."""
    words = [f"{view} ({names[view]})" if names else str(view) for view in views]
    return f"view{'s' if len(words) > 1 else ''} {listed(words)}"


def is_allocation_failure(error: BaseException) -> bool:
    """Whether an exception, from Jittor too, reports that memory ran out.

    If a signal ends a compiler, Jittor names the end of memory as a possible cause; that is none.
    """
    text = _text(error).lower()
    is_named = not is_compiler_failure(error) and any(part in text for part in FAILURE_TEXTS)
    return isinstance(error, MemoryError) or is_named


def is_compiler_failure(error: BaseException) -> bool:
    """Whether an exception of Jittor reports that a compiler failed, or was ended by a signal."""
    return isinstance(error, RuntimeError) and "Run cmd failed" in _text(error)

"""The one kind of error a user can mend, and what its sentences are made of."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

LONGEST_SENTENCE = 2000  # characters; two paths of the greatest length some systems allow need less
LONGEST_REASON = 200  # characters of a library's own words, which may quote a whole file
MOST_LISTED = 5  # names in a sentence before the others are only counted
# What parsers raise for bytes that make no sense, whatever their authors foresaw.
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, EOFError, MemoryError)
DAMAGE += (SyntaxError, struct.error)
# Texts of the errors in which Jittor, CUDA and the C++ library report that memory ran out.
FAILURE_TEXTS = ("out of memory", "memoryallocation", "bad_alloc", "cannot allocate memory", "unable to alloc")
FAILURE_TEXTS += ("memory is overflow",)  # Jittor's, where its pool holds nearly all of a card
# The same where a library is loaded, or a thread is to be started.
FAILURE_TEXTS += ("failed to map segment", "resource temporarily unavailable", "can't start new thread")


class UserError(Exception):
    """A user's mistake, in one sentence: what is wrong, in which file, key or value, and how to mend it.

    The command line prints the sentence and exits with status 2; no traceback.
    """


class SceneError(UserError):
    """A scene that cannot be trained on: says which file, key or view is wrong and how to mend it."""


def one_line(text: str) -> str:
    """`text` as it can be shown on a terminal, whatever a file's name or content put into it.

    Line breaks, escape sequences and other characters that do not print are spelt out; a long text loses its middle.
    """
    spelt = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    half = LONGEST_SENTENCE // 2  # what a message quotes stands in its middle
    return spelt if len(spelt) <= LONGEST_SENTENCE else f"{spelt[:half]}...{spelt[-half:]}"


def reason(error: BaseException) -> str:
    """What a library's exception says, on one line; its kind where it says nothing."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split())[:LONGEST_REASON] or type(error).__name__


def listed(words: Sequence[str], most: int = MOST_LISTED) -> str:
    """`a`, `a and b`, `a, b and c`, and beyond `most` words `a, b and 7 more`; nothing for none."""
    shown = [*words[:most], f"{len(words) - most} more"] if len(words) > most else words
    return " and ".join([part for part in (", ".join(shown[:-1]), *shown[-1:]) if part])


def listed_views(views: Iterable[int], names: Sequence[str] = ()) -> str:
    """`view 3`, `views 1, 2 and 7`, `views 0, 1, 2, 3, 4 and 12 more`; with `names` of all views, those beside."""
    shown = [f"{view} ({names[view]})" if names else str(view) for view in views]
    return f"view{'s' if len(shown) > 1 else ''} {listed(shown)}"


def is_allocation_failure(error: BaseException) -> bool:
    """Whether an exception, of Jittor's too, says that there was no memory left."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(part in text for part in FAILURE_TEXTS)

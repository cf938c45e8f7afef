"""A card that fails as it computes: by which words it is known, and what is told of it.

After such an error all further work of the process on the card fails, and nothing can be read from it any more.
"""

from __future__ import annotations

import re

from data.errors import LONGEST_REASON

# Of CUDA's errors that are as final (driver_types.h), names and texts in lower case; not those of a wrong call, after
# which the next one may succeed, nor those of memory.
TEXTS = ("illegaladdress", "illegal memory access", "launchfailure", "unspecified launch failure")
TEXTS += ("cudaerrorassert", "device-side assert", "launchtimeout", "launch timed out")
TEXTS += ("eccuncorrectable", "uncorrectable ecc", "nvlinkuncorrectable", "uncorrectable nvlink", "cudaerrorcontained")
TEXTS += ("illegalinstruction", "illegal instruction was", "misalignedaddress", "misaligned address")
TEXTS += ("invalidaddressspace", "global/shared address space", "cudaerrorinvalidpc", "invalid program counter")
TEXTS += ("hardwarestackerror", "hardware stack error", "cudaerrorunknown", "unknown error: status 999")
# In front of what a line says: "[Reason]: ", and the level, time, thread and place of a line of Jittor's log.
BEFORE = re.compile(r".*\]:? ")
FOLDERS = re.compile(r"\S*/")


class CardFailedError(Exception):
    """A card failed, in one sentence: its last words, what is kept, and what to do."""

    def __init__(self, words: str, kept: str = "run again") -> None:
        super().__init__(
            f"the card failed ({words}): {kept}; where it fails again, see --mode doctor and the driver's log "
            "(`dmesg | grep -i xid`), and report what they say"
        )


def last_words(error: BaseException) -> str:
    """What CUDA said of a card that failed, on one line; "" where the error is another one."""
    lines = [line for line in str(error).splitlines() if any(text in line.lower() for text in TEXTS)]
    told = FOLDERS.sub("", BEFORE.sub("", lines[-1])) if lines else ""
    return " ".join(told.split())[:LONGEST_REASON]

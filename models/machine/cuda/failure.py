"""Detection and report of a GPU that fails during the computation.

After such an error all further CUDA calls of the process fail, and GPU memory can no longer be read.
"""

from __future__ import annotations

import re

from data.errors import LONGEST_REASON

# Names and texts of CUDA's fatal errors (driver_types.h), in lower case; without errors of invalid calls or out of
# memory, after which the next call may succeed.
TEXTS: tuple[str, ...] = ("illegaladdress", "illegal memory access", "launchfailure", "unspecified launch failure")
TEXTS += ("cudaerrorassert", "device-side assert", "launchtimeout", "launch timed out")
TEXTS += ("eccuncorrectable", "uncorrectable ecc", "nvlinkuncorrectable", "uncorrectable nvlink", "cudaerrorcontained")
TEXTS += ("illegalinstruction", "illegal instruction was", "misalignedaddress", "misaligned address")
TEXTS += ("invalidaddressspace", "global/shared address space", "cudaerrorinvalidpc", "invalid program counter")
TEXTS += ("hardwarestackerror", "hardware stack error", "cudaerrorunknown", "unknown error: status 999")
# The prefix of a message: "[Reason]: ", or level, time, thread and location in Jittor's log.
BEFORE = re.compile(r".*\]:? ")
FOLDERS = re.compile(r"\S*/")


class GpuFailedError(Exception):
    """A GPU failed; the message has CUDA's error, the state that is kept, and what to do."""

    def __init__(self, words: str, kept: str = "run again") -> None:
        super().__init__(
            f"the GPU failed ({words}): {kept}; if it fails again, run --mode doctor, look at the driver's log "
            "(`dmesg | grep -i xid`), and report both"
        )


def last_words(error: BaseException) -> str:
    """CUDA's message if the error is a failed GPU, on one line; "" for any other error."""
    lines = [line for line in str(error).splitlines() if any(text in line.lower() for text in TEXTS)]
    message = FOLDERS.sub("", BEFORE.sub("", lines[-1])) if lines else ""
    return " ".join(message.split())[:LONGEST_REASON]

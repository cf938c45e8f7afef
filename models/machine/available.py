"""The memory that the process may still allocate, in bytes; does not import Jittor."""

from __future__ import annotations

import resource
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
NO_LIMIT = 2**63 - 1
FLOAT_BYTES = 4  # of a float32


def available_bytes() -> int:
    """Available main memory, within the limits of the container and the process (ulimit -v, -d)."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    pages = [int(count) for count in Path("/proc/self/statm").read_text(encoding="utf-8").split()]
    for kind, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            free = min(free, max(0, limit - used * resource.getpagesize()))
    return min(free, container_leaves(CGROUP))


def container_leaves(folder: Path) -> int:
    """What the memory limit of a control group (version 2) leaves; NO_LIMIT without one."""
    try:
        limit, used = ((folder / name).read_text(encoding="utf-8").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return NO_LIMIT
    return NO_LIMIT if limit == "max" else max(0, int(limit) - int(used))


def resident_bytes() -> int:
    """Resident memory of the process, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()

"""The memory that the process may still allocate, in bytes; does not import Jittor."""

from __future__ import annotations

import resource
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
NO_LIMIT = 2**63 - 1
FLOAT_BYTES = 4  # of a float32


def available_bytes() -> int:
    """Available main memory, within the limits of the container and the process (ulimit -v, -d)."""
    return min(meminfo("MemAvailable"), container_leaves(CGROUP), limits_leave())


def meminfo(name: str) -> int:
    """An entry of /proc/meminfo in bytes; 0 if it is missing."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def container_leaves(folder: Path) -> int:
    """What the memory limit of a control group (version 2) leaves; NO_LIMIT without one."""
    try:
        limit, used = ((folder / name).read_text(encoding="utf-8").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return NO_LIMIT
    return NO_LIMIT if limit == "max" else max(0, int(limit) - int(used))


def limits_leave() -> int:
    """What the limits on address space and data of this process leave; NO_LIMIT without any."""
    status = Path("/proc/self/statm").read_text(encoding="utf-8").split()
    page = resource.getpagesize()
    used = {resource.RLIMIT_AS: int(status[0]) * page, resource.RLIMIT_DATA: int(status[5]) * page}
    soft = {kind: resource.getrlimit(kind)[0] for kind in used}
    return min(NO_LIMIT if soft[kind] == resource.RLIM_INFINITY else max(0, soft[kind] - used[kind]) for kind in used)


def resident_bytes() -> int:
    """Resident memory of the process, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()

"""How much memory the process may still take, in bytes; without Jittor."""

from __future__ import annotations

import resource
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
NO_LIMIT = 2**63 - 1


def available_bytes() -> int:
    """Main memory that is free or can be freed, as far as container and process limits (ulimit -v, -d) leave it."""
    return min(meminfo("MemAvailable"), container_leaves(CGROUP), limits_leave())


def meminfo(name: str) -> int:
    """An entry of /proc/meminfo; 0 where it is missing."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def container_leaves(folder: Path) -> int:
    """What the memory limit of a control group (version 2) leaves; a very large number where there is none."""
    try:
        limit, used = ((folder / name).read_text(encoding="utf-8").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return NO_LIMIT
    return NO_LIMIT if limit == "max" else max(0, int(limit) - int(used))


def limits_leave() -> int:
    """What the limits on the address space and the data of this process leave."""
    status = Path("/proc/self/statm").read_text(encoding="utf-8").split()
    page = resource.getpagesize()
    used = {resource.RLIMIT_AS: int(status[0]) * page, resource.RLIMIT_DATA: int(status[5]) * page}
    soft = {kind: resource.getrlimit(kind)[0] for kind in used}
    return min(NO_LIMIT if soft[kind] == resource.RLIM_INFINITY else max(0, soft[kind] - used[kind]) for kind in used)

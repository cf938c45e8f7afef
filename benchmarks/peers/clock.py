"""Runs commands one after the other and writes what they used: `PYTHON -I -S clock.py JOB.json`.

A small process of its own, with nothing but the standard library: the peak memory of a child that Linux reports is at
least that of the process that started it. JOB.json holds `commands` (lists of words), `folder` (where they run), `log`
(takes their output), `environment` and `used`, the file to write: `status` of the last command that ran, `command` (its
words), `wall` and `processor` seconds of all, `peak_bytes` of the largest process. The first command that fails is the
last that runs.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

KIBIBYTE = 1024  # unit of ru_maxrss on Linux
NOT_STARTED = 127  # as a shell has it


def main(job_file: str) -> None:
    """Run the job."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    begin, status, command = time.perf_counter(), 0, []
    with open(job["log"], "wb") as log:
        for command in job["commands"]:
            status = run(command, job["folder"], job["environment"], log.fileno())
            if status != 0:
                break
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = {
        "status": status,
        "command": command,
        "wall": time.perf_counter() - begin,
        "processor": spent.ru_utime + spent.ru_stime,
        "peak_bytes": spent.ru_maxrss * KIBIBYTE,
    }
    Path(job["used"]).write_text(json.dumps(used), encoding="utf-8")


def run(command: list[str], folder: str, environment: dict[str, str], log: int) -> int:
    """The exit status of a command whose output goes to the file descriptor `log`."""
    try:
        return subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=False).returncode
    except OSError as error:
        os.write(log, f"{command[0]} cannot be started ({error.strerror})\n".encode())
        return NOT_STARTED


if __name__ == "__main__":
    main(sys.argv[1])

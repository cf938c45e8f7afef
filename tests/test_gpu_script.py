"""`benchmarks/gpu.sh`: a pack is whole, a stage that fails stops no other, and a run ends in time or can be stopped."""

import json
import signal
import subprocess
import sys
import time

import pytest
from runs import ROOT

from benchmarks.gpu_run import NOT_STARTED, STOPPED

pytestmark = pytest.mark.alone

SCRIPT = str(ROOT / "benchmarks" / "gpu.sh")
SECONDS = 30  # after which a test gives up
# An interpreter whose programs do nothing but to say so; $STAGE is what one of them does; pip leaves a wheel.
PYTHON = f"""#!/bin/sh
case "$*" in
    *gpu_run*) exec {sys.executable} "$@" ;;
    *steps.json*) eval "$STAGE" ;;
    *mode\\ evaluate*) mkdir -p "$WORK/runs/bunny/report" && echo > "$WORK/runs/bunny/report/report.png" ;;
    *pip\\ download*) while [ "$1" != -d ]; do shift; done; echo > "$2/a.whl" ;;
    *zipfile*) mkdir -p "$5/a/tests" && echo all > "$5/a/there.py" && echo none > "$5/a/tests/not.py" ;;
    *) echo "did $1" ;;
esac
"""


def started(tmp_path, *arguments, **variables):
    """The script, with a program for Python."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    paths = {"PYTHON": "python", "OUT": "out", "WORK": "work", "PACK": "pack", "TMPDIR": "", "HOME": ""}
    environment = {name: str(tmp_path / path) for name, path in paths.items()} | {"PATH": "/usr/bin:/bin"} | variables
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(["bash", SCRIPT, *arguments], env=environment, **pipes)


def ended(process):
    said, _ = process.communicate(timeout=SECONDS)
    return process.returncode, said


def statuses(tmp_path):
    return {row[0]: row[1] for row in json.loads((tmp_path / "out" / "results.json").read_text())["stages"]}


def test_a_pack_holds_what_is_needed(tmp_path):
    status, said = ended(started(tmp_path, "pack"))
    assert status == 0, said
    names = subprocess.check_output(["tar", "tJf", tmp_path / "pack" / "site.tar.xz"], text=True).split()
    assert "site/a/there.py" in names and "site/a/tests/" not in names


def test_a_stage_that_fails_stops_no_other_and_earlier_results_are_kept(tmp_path):
    assert ended(started(tmp_path, STAGE="seq 500; exit 3"))[0] == 0
    found = statuses(tmp_path)
    assert list(found)[:3] == ["facts", "unpack", "packages"] and {*list(found)[3:5]} == {"compile", "build"}
    assert list(found)[5:] == ["kernels", "steps", "trace", "trace_tf32", "bunny_train", "bunny", "fast"]
    assert found.pop("steps") == "3" and {*found.values()} == {"0"}
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"results.json", "results.md", "logs.tar.gz", "bunny.png"}
    assert "[260 lines]" in json.loads((tmp_path / "out" / "results.json").read_text())["logs"]["steps"]
    assert ended(started(tmp_path, STAGES="rest"))[0] == 0 and {"parity", "lego", "doctor"} < {*statuses(tmp_path)}
    assert (tmp_path / "out" / "earlier-1" / "results.md").is_file()
    status, said = ended(started(tmp_path, STAGES="step"))
    assert status == 2 and said.startswith("error: STAGES: there is no stage step")


def test_a_total_limit_ends_the_run_with_all_files(tmp_path):
    begin = time.monotonic()
    assert ended(started(tmp_path, STAGE="trap '' INT; sleep 60", LIMIT="12"))[0] == 0
    found = statuses(tmp_path)
    assert found["steps"] == "124" and found["build"] == "0" and found["fast"] == NOT_STARTED
    assert time.monotonic() - begin < 13


def test_a_signal_ends_the_stage_with_its_children_and_the_run(tmp_path):
    alive = tmp_path / "alive"
    work = f"(trap '' INT; while :; do touch {alive}; sleep 0.1; done) & wait"
    running = started(tmp_path, STAGE=work, LIMIT="16", STAGES="steps")
    while not alive.exists():
        time.sleep(0.05)
    assert "another call uses" in ended(started(tmp_path))[1]
    running.send_signal(signal.SIGTERM)
    status, said = ended(running)
    assert status == 128 + signal.SIGTERM and "stopped by SIGTERM" in said and statuses(tmp_path)["steps"] == STOPPED
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()

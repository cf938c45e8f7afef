"""`benchmarks/gpu.sh`: a pack is whole, a stage that fails stops no other, and a run ends in time or can be stopped."""

import json
import signal
import subprocess
import sys
import tarfile
import time

import pytest
from runs import ROOT

from benchmarks.gpu_run import NOT_STARTED, STOPPED

pytestmark = pytest.mark.alone

SCRIPT = str(ROOT / "benchmarks" / "gpu.sh")
SECONDS = 30  # after which a test gives up
# An interpreter whose programs do nothing but to say so; $STAGE is what one of them does. The run is the real one.
PYTHON = f"""#!/bin/sh
case "$*" in
    *gpu_run*) exec {sys.executable} "$@" ;;
    *steps.json*) eval "$STAGE" ;;
    *mode\\ evaluate*) mkdir -p "$WORK/runs/bunny/report" && echo > "$WORK/runs/bunny/report/report.png" ;;
    *) echo "did $1" ;;
esac
"""
# One that packs: pip leaves a wheel and zipfile unpacks it.
PACKER = """#!/bin/sh
case "$*" in
    *pip\\ download*) echo "ERROR: warned of" >&2; eval "$DOWNLOAD" ;;
    *zipfile*) mkdir -p "$5/a/tests" && echo all > "$5/a/there.py" && echo none > "$5/a/tests/not.py" ;;
esac
"""
DOWNLOAD = 'while [ "$1" != -d ]; do shift; done; echo > "$2/a.whl"'


@pytest.fixture
def call(tmp_path):
    """A function that gives the arguments of a process that runs the script with a program for Python."""

    def of(program, *arguments, **more):
        path = tmp_path / "python"
        path.write_text(program)
        path.chmod(0o755)
        paths = {"HOME": tmp_path, "PYTHON": path, "OUT": tmp_path / "out", "WORK": tmp_path / "work"}
        paths |= {"PACK": tmp_path / "pack", "TMPDIR": tmp_path, "PATH": "/usr/bin:/bin", "DOWNLOAD": DOWNLOAD}
        environment = {name: str(value) for name, value in (paths | more).items()}
        return {"args": ["bash", SCRIPT, *map(str, arguments)], "env": environment, "text": True}

    return of


def ended(call):
    return subprocess.run(**call, capture_output=True, timeout=SECONDS)


def statuses(tmp_path):
    return {row[0]: row[1] for row in json.loads((tmp_path / "out" / "results.json").read_text())["stages"]}


def test_a_pack_holds_what_is_needed_or_is_not_replaced(call, tmp_path):
    told = ended(call(PACKER, "pack"))
    assert told.returncode == 0, told.stderr
    with tarfile.open(tmp_path / "pack" / "site.tar.xz") as archive:
        names = archive.getnames()
    assert "site/a/there.py" in names and "site/a/tests" not in names
    before = (tmp_path / "pack" / "site.tar.xz").read_bytes()
    told = ended(call(PACKER, "pack", DOWNLOAD="echo no network >&2; exit 1"))
    assert told.returncode == 1 and "pack could not fetch the packages (no network)" in told.stderr
    assert (tmp_path / "pack" / "site.tar.xz").read_bytes() == before


def test_a_stage_that_fails_stops_no_other_and_results_are_kept(call, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.md").write_text("earlier")
    told = ended(call(PYTHON, STAGE="seq 500; exit 3"))
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "out" / "earlier-1" / "results.md").read_text() == "earlier"
    found = statuses(tmp_path)
    assert list(found)[:3] == ["facts", "unpack", "packages"] and {*list(found)[3:5]} == {"compile", "build"}
    assert list(found)[5:] == ["kernels", "steps", "trace", "trace_tf32", "bunny_train", "bunny", "fast"]
    assert found.pop("steps") == "3" and {*found.values()} == {"0"}
    names = {"results.json", "results.md", "logs.tar.gz", "bunny.png", "earlier-1"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert "[260 lines]" in json.loads((tmp_path / "out" / "results.json").read_text())["logs"]["steps"]


def test_the_second_call_has_the_other_stages_and_a_wrong_name_is_told(call, tmp_path):
    assert ended(call(PYTHON, STAGES="rest")).returncode == 0
    assert {"parity", "splats", "lego_train", "lego", "doctor", "demo_tf32"} < {*statuses(tmp_path)}
    wrong = ended(call(PYTHON, STAGES="step"))
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: STAGES: there is no stage step")


def test_a_total_limit_ends_the_run_with_all_files(call, tmp_path):
    begin = time.monotonic()
    told = ended(call(PYTHON, STAGE="trap '' INT; sleep 60", LIMIT="12"))
    assert told.returncode == 0 and time.monotonic() - begin < 13
    found = statuses(tmp_path)
    assert found["steps"] == "124" and found["build"] == "0" and found["fast"] == NOT_STARTED


def test_a_signal_ends_the_stage_with_its_children_and_the_run(call, tmp_path):
    alive = tmp_path / "alive"
    work = f"(trap '' INT; while :; do touch {alive}; sleep 0.1; done) & wait"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = subprocess.Popen(**call(PYTHON, STAGE=work, LIMIT="16", STAGES="steps"), **pipes)
    end = time.monotonic() + SECONDS
    while not alive.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    told, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM" in told
    assert statuses(tmp_path)["steps"] == STOPPED
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()

"""`benchmarks/gpu.sh`: a pack is whole, a stage that fails stops no other, and a run can be stopped."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import ROOT

pytestmark = pytest.mark.alone

SCRIPT = str(ROOT / "benchmarks" / "gpu.sh")
SECONDS = 30  # after which a test gives up
# An interpreter whose programs do nothing but to say so; $STAGE is what one of them does. The report is the real one.
PYTHON = f"""#!/bin/sh
case "$*" in
    *gpu_report*) exec {sys.executable} "$@" ;;
    *parity*) eval "$STAGE" ;;
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
TAKES_LONG = "(trap '' INT TERM HUP; echo $$ > $PIDS; sleep 60 & echo $! >> $PIDS; wait) & wait"


@pytest.fixture
def call(tmp_path):
    """A function that gives the arguments of a process that runs the script with a program for Python."""

    def of(program, *arguments, **more):
        path = tmp_path / "python"
        path.write_text(program)
        path.chmod(0o755)
        paths = {"HOME": tmp_path, "PYTHON": path, "OUT": tmp_path / "out", "SITE": tmp_path / "site"}
        paths |= {"PACK": tmp_path / "pack", "PIDS": tmp_path / "pids", "TMPDIR": tmp_path}
        environment = {"PATH": "/usr/bin:/bin", "GRACE": "1", "DOWNLOAD": DOWNLOAD}
        environment |= {name: str(value) for name, value in (paths | more).items()}
        return {"args": ["bash", SCRIPT, *map(str, arguments)], "env": environment, "text": True}

    return of


def ended(call):
    return subprocess.run(**call, capture_output=True, timeout=SECONDS)


# the pack


def test_a_pack_holds_what_is_needed_and_nothing_else_is_left(call, tmp_path):
    told = ended(call(PACKER, "pack"))
    assert told.returncode == 0 and told.stderr == "" and "MiB" in told.stdout
    assert {path.name for path in (tmp_path / "pack").iterdir()} == {"site.tar.xz", "python-version"}
    listed = subprocess.check_output(["tar", "tJf", tmp_path / "pack" / "site.tar.xz"], text=True).split()
    assert "site/a/there.py" in listed and not [name for name in listed if "tests" in name]
    assert {path.name for path in tmp_path.iterdir()} == {"python", "pack"}  # nothing of its scratch folder


# a run


def rows(tmp_path):
    return [line.split(",") for line in (tmp_path / "out" / "stages.csv").read_text().splitlines()]


def test_a_stage_that_fails_stops_no_other(call, tmp_path):
    """Where nothing is there: no packages, no card."""
    told = ended(call(PYTHON, STAGE="exit 3"))
    assert told.returncode == 0, told.stderr
    names = [row[0] for row in rows(tmp_path)]
    assert names[:5] == ["facts", "packages", "parity", "steps", "doctor"] and names[-1] == "flat"
    assert {row[0]: row[1] for row in rows(tmp_path)}["parity"] == "3"
    facts = (tmp_path / "out" / "facts.log").read_text().splitlines()
    assert any(line.endswith("/g++") for line in facts) and not [line for line in facts if "invalid option" in line]


def test_only_the_chosen_stages_run(call, tmp_path):
    told = ended(call(PYTHON, STAGES="steps flat"))
    assert told.returncode == 0 and [row[0] for row in rows(tmp_path)] == ["steps", "flat"]


# stopped


def waited_for(what):
    end = time.monotonic() + SECONDS
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def numbers(tmp_path):
    """Of the processes of the stage, once both are there."""
    path = tmp_path / "pids"
    found = path.read_text().split() if path.exists() else []
    return found if len(found) == 2 else []


def is_alive(number):
    status = Path(f"/proc/{number}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def check_stopped(tmp_path, pids):
    waited_for(lambda: not any(map(is_alive, pids)))
    names = [row[0] for row in rows(tmp_path)]
    assert names == ["facts", "packages", "parity"] and rows(tmp_path)[-1][1] == "stopped"
    assert "| parity | stopped |" in (tmp_path / "out" / "results.md").read_text()


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_stage_with_its_children_and_the_run(call, tmp_path, name):
    def as_from_a_terminal():
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    running = subprocess.Popen(
        **call(PYTHON, STAGE=TAKES_LONG),
        preexec_fn=as_from_a_terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    pids = waited_for(lambda: numbers(tmp_path))
    second = ended(call(PYTHON, STAGE="exit 0"))
    assert second.returncode == 2 and "another call" in second.stderr
    running.send_signal(getattr(signal, f"SIG{name}"))
    told, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + getattr(signal, f"SIG{name}") and f"stopped by SIG{name}" in told
    check_stopped(tmp_path, pids)

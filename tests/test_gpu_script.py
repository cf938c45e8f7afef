"""benchmarks/gpu.sh: a pack is whole or there is none, stages that fail stop no other, and a run can be stopped."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
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


def test_packing_without_scenes_says_which_are_missing(call, tmp_path):
    told = ended(call(PACKER, "pack", tmp_path))
    assert told.returncode == 2 and "bunny is missing" in told.stderr


def test_a_pack_holds_what_is_needed_and_nothing_else_is_left(call, tmp_path):
    told = ended(call(PACKER, "pack"))
    assert told.returncode == 0 and told.stderr == "" and "MiB" in told.stdout
    assert {path.name for path in (tmp_path / "pack").iterdir()} == {"site.tar.xz", "python-version"}
    listed = subprocess.check_output(["tar", "tJf", tmp_path / "pack" / "site.tar.xz"], text=True).split()
    assert "site/a/there.py" in listed and not [name for name in listed if "tests" in name]
    assert {path.name for path in tmp_path.iterdir()} == {"python", "pack"}  # nothing of its scratch folder


FAILURES = {
    "pip fails": ({"DOWNLOAD": "exit 1"}, "could not fetch the packages (ERROR: warned of)"),
    "no folder for scratch": ({"TMPDIR": "/nowhere/at/all"}, "set TMPDIR"),
    "no xz": ({"without": ("xz",)}, "needs xz"),
    "no Python": ({"PYTHON": "/nowhere/python"}, "needs /nowhere/python"),
    "a disk that is full": ({"instead": {"xz": "head -c 9; echo 'xz: No space left' >&2; exit 1"}}, "No space left"),
    "an archive that is short": (
        {"instead": {"xz": 'case "$*" in *-d*) exec /usr/bin/xz "$@" ;; *) head -c 9; esac'}},
        "write",
    ),
    "a pack that is too large": ({"instead": {"du": r"printf '51\tit'"}}, "51 MiB"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("is_second", [False, True])
def test_a_pack_that_fails_is_one_sentence_a_status_and_no_file(call, tmp_path, name, is_second):
    changed, words = FAILURES[name]
    changed = dict(changed)
    tools = tmp_path / "tools"
    tools.mkdir()
    without, instead = changed.pop("without", ()), changed.pop("instead", {})
    if without or instead:
        for path in Path("/usr/bin").iterdir():
            if path.name not in (*without, *instead):
                (tools / path.name).symlink_to(path)
        for tool, text in instead.items():
            (tools / tool).write_text(f"#!/bin/sh\n{text}\n")
            (tools / tool).chmod(0o755)
        changed["PATH"] = tools
    pack = tmp_path / "pack"
    if is_second:
        pack.mkdir()
        (pack / "site.tar.xz").write_text("that of before")
    told = ended(call(PACKER, "pack", **changed))
    assert told.returncode == 1 and words in told.stderr
    assert len(told.stderr.splitlines()) == 1 and told.stderr.startswith("error: ")
    left = {path.name: path.read_text() for path in pack.iterdir()} if pack.exists() else {}
    assert left == ({"site.tar.xz": "that of before"} if is_second else {})
    assert {path.name for path in tmp_path.iterdir()} <= {"python", "pack", "tools"}


# a run


@pytest.mark.parametrize("words", [["--help"], ["packk"], ["pack", "a", "b"]])
def test_words_that_mean_nothing_start_nothing(call, tmp_path, words):
    told = ended(call(PYTHON, *words))
    assert (
        told.returncode == 2
        and told.stderr.count("\n") == 1
        and {path.name for path in tmp_path.iterdir()} == {"python"}
    )


def test_a_device_that_is_none_starts_nothing(call, tmp_path):
    told = ended(call(PYTHON, DEVICE="gpu"))
    assert told.returncode == 2 and "DEVICE=cpu" in told.stderr and not (tmp_path / "out").exists()


def test_without_packages_nothing_is_measured(call, tmp_path):
    told = ended(
        call(
            PYTHON.replace(
                "*parity*)", '*import*mcubes*) echo "error: cannot import cv2" >&2; exit 1 ;;\n    *parity*)'
            )
        )
    )
    assert told.returncode == 1 and "cannot import cv2" in told.stdout and "packages are missing" in told.stderr
    assert [row[0] for row in rows(tmp_path)] == ["facts", "packages"]


def test_a_training_that_takes_longer_than_it_may_is_evaluated_all_the_same(call, tmp_path):
    program = PYTHON.replace("*parity*)", "*mode\\ train*runs/lego\\ *) exec sleep 60 ;;\n    *parity*)")
    evaluation = 'case "$*" in *evaluate*runs/lego\\ *) echo evaluated ;; esac'
    program = f"#!/bin/sh\n{evaluation}\n{program.partition(chr(10))[2]}"
    script = tmp_path / "gpu.sh"
    text = Path(SCRIPT).read_text().replace("fast_nerf.conf lego 300", "fast_nerf.conf lego 1")
    script.write_text(text.replace('cd "$(dirname "${BASH_SOURCE[0]}")/.."', f"cd {ROOT}"))
    told = call(program, STAGE="exit 0")
    told["args"][1] = str(script)
    assert ended(told).returncode == 0
    assert "evaluated" in (tmp_path / "out" / "lego.log").read_text()


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


def test_results_of_an_earlier_run_are_kept_and_not_told_as_this_ones(call, tmp_path):
    out = tmp_path / "out"
    (out / "runs" / "bunny" / "report").mkdir(parents=True)
    old = {
        "bunny.json": '{"chamfer": 0.005}',
        "lego.png": "a picture",
        "facts.log": "a card",
        "stages.csv": "bunny,0,1,2\n",
    }
    old |= {"runs/bunny/report/metrics.json": '{"chamfer": 0.004}', "mine.txt": "not a result"}
    for name, text in old.items():
        (out / name).write_text(text)
    for earlier in ("earlier-1", "earlier-2"):
        assert ended(call(PYTHON, STAGE="exit 0")).returncode == 0
        assert "| bunny chamfer" not in (out / "results.md").read_text() and not (out / "lego.png").exists()
        assert (out / "mine.txt").exists() and (out / earlier / "stages.csv").exists()
    assert all((out / "earlier-1" / name).read_text() == text for name, text in old.items() if name != "mine.txt")


def test_a_pack_that_cannot_be_unpacked_is_not_used(call, tmp_path):
    (tmp_path / "site" / "jittor").mkdir(parents=True)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "site.tar.xz").write_text("cut short")
    assert ended(call(PYTHON, STAGE='echo "path $PYTHONPATH"')).returncode == 0
    assert str(tmp_path / "site") not in (tmp_path / "out" / "parity.log").read_text()


def test_a_folder_that_cannot_be_written_to_is_one_sentence(call):
    told = ended(call(PYTHON, OUT="/proc/nowhere"))
    assert told.returncode == 2 and told.stderr.count("\n") == 1 and "set OUT" in told.stderr


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


@pytest.mark.parametrize("way", ["Ctrl-C", "lost"])
def test_a_terminal_ends_it_by_ctrl_c_and_by_its_own_end(call, tmp_path, way):
    ours, its = pty.openpty()

    def its_terminal():
        os.setsid()
        fcntl.ioctl(its, termios.TIOCSCTTY, 0)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    running = subprocess.Popen(
        **call(PYTHON, STAGE=TAKES_LONG), preexec_fn=its_terminal, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    pids = waited_for(lambda: numbers(tmp_path))
    if way == "lost":
        os.close(ours)
    else:
        os.write(ours, b"\x03")
    assert running.wait(timeout=SECONDS) == 128 + (signal.SIGHUP if way == "lost" else signal.SIGINT)
    if way != "lost":
        os.close(ours)
    check_stopped(tmp_path, pids)


def test_packing_that_is_stopped_leaves_nothing(call, tmp_path):
    download = "echo $$ > $PIDS; sleep 60 & echo $! >> $PIDS; wait"
    running = subprocess.Popen(
        **call(PACKER, "pack", DOWNLOAD=download), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    pids = waited_for(lambda: numbers(tmp_path))
    running.terminate()
    running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + signal.SIGTERM
    waited_for(lambda: not any(map(is_alive, pids)))
    assert {path.name for path in tmp_path.iterdir()} == {"python", "pids"}

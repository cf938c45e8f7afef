"""`benchmarks/gpu.sh`: a pack is whole, a stage that fails stops no other, and a run ends in time or can be stopped."""

import json
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from runs import ROOT

from benchmarks import gpu_run
from benchmarks.gpu_stages import ALWAYS, FIRST, REST, Place, stages

pytestmark = pytest.mark.alone

SCRIPT = str(ROOT / "benchmarks" / "gpu.sh")
SECONDS = 30  # after which a test gives up
# An interpreter whose programs do nothing but to say so; $STAGE is what one of them does. The run is the real one.
PYTHON = f"""#!/bin/sh
case "$*" in
    *gpu_run*) exec {sys.executable} "$@" ;;
    *parity*) eval "$STAGE" ;;
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
TAKES_LONG = "(trap '' INT TERM HUP; echo $$ > $PIDS; sleep 60 & echo $! >> $PIDS; wait) & wait"


@pytest.fixture
def call(tmp_path):
    """A function that gives the arguments of a process that runs the script with a program for Python."""

    def of(program, *arguments, **more):
        path = tmp_path / "python"
        path.write_text(program)
        path.chmod(0o755)
        paths = {"HOME": tmp_path, "PYTHON": path, "OUT": tmp_path / "out", "WORK": tmp_path / "work"}
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


PREPARED = ["facts", "unpack", "packages"]
TOGETHER = ["compile", "parity", "splats", "build"]


def rows(tmp_path):
    return [line.split(",") for line in (tmp_path / "work" / "stages.csv").read_text().splitlines()]


def statuses(tmp_path):
    return {row[0]: row[1] for row in rows(tmp_path)}


def check_files(tmp_path, *more):
    """All files are in OUT's top, and no more than come back from a lent machine."""
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"results.json", "results.md", "raw.tar.gz", *more} and len(names) <= gpu_run.MOST_FILES


def test_a_pack_for_another_python_gives_its_scenes_alone(call, tmp_path):
    ended(call(PACKER, "pack"))
    for version, status, names in (("3.12", "2", {"scenes"}), ("did -c", "0", {"scenes", "a"})):
        (tmp_path / "pack" / "python-version").write_text(version)
        ended(call(PYTHON, STAGES="steps"))  # "did -c" is what this Python says
        assert statuses(tmp_path)["unpack"] == status
        assert {path.name for path in (tmp_path / "work" / "site").iterdir()} == names


def test_a_stage_that_fails_stops_no_other(call, tmp_path):
    """Where nothing is there: no packages, no card, no profiler."""
    compiled = tmp_path / ".cache" / "jittor" / "jt1"
    compiled.mkdir(parents=True)
    (compiled / "a.so").write_text("compiled")
    told = ended(call(PYTHON, STAGE="seq 500; exit 3"))
    assert told.returncode == 0, told.stderr
    found = statuses(tmp_path)
    first = ["kernels", "steps", "trace", "trace_tf32", "fast", "bunny_train", "bunny", "ncu", "cache"]
    assert {*list(found)[:2]} == {*PREPARED[:2]} and {*list(found)[3:7]} == {*TOGETHER} and list(found)[7:] == first
    assert found.pop("parity") == "3" and found.pop("ncu") == "127" and {*found.values()} == {"0"}
    check_files(tmp_path, "bunny.png", "cache.tar.xz.aa")
    logs = json.loads((tmp_path / "out" / "results.json").read_text())["logs"]
    assert logs["parity"][:1] == ["1"] and logs["parity"][-1:] == ["500"] and "[260 lines]" in logs["parity"]
    with tarfile.open(tmp_path / "out" / "raw.tar.gz") as archive:
        assert len(archive.extractfile("logs/parity.log").read().split()) == 500
        facts = archive.extractfile("logs/facts.log").read().decode().splitlines()
    assert any(line.endswith("/g++") for line in facts) and not [line for line in facts if "invalid option" in line]


def test_only_the_chosen_stages_run_and_earlier_results_are_kept(call, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "results.md").write_text("earlier")
    told = ended(call(PYTHON, STAGES="steps flat demo"))
    assert told.returncode == 0 and [*statuses(tmp_path)][3:] == ["steps", "demo_train", "demo", "flat"]
    assert (tmp_path / "out" / "earlier-1" / "results.md").read_text() == "earlier"
    wrong = ended(call(PYTHON, STAGES="step"))
    assert (
        wrong.returncode == 2
        and wrong.stderr == "error: STAGES: there is no stage step: see benchmarks/gpu_stages.py\n"
    )


def test_a_total_limit_ends_the_run_with_all_files(call, tmp_path):
    """Two stages beside each other end only when they are killed."""
    begin, program = time.monotonic(), PYTHON.replace("*parity*", "*parity* | *test_splats*")
    told = ended(call(program, STAGE="trap '' INT; sleep 60", LIMIT="12", GRACE="3"))
    assert told.returncode == 0 and time.monotonic() - begin < 12
    found = statuses(tmp_path)
    assert found["parity"] == found["splats"] == gpu_run.AT_LIMIT and found["compile"] == found["build"] == "0"
    assert found["bunny"] == found["cache"] == gpu_run.NOT_STARTED
    assert f"| cache | {gpu_run.NOT_STARTED} |" in (tmp_path / "out" / "results.md").read_text()
    check_files(tmp_path)


@pytest.mark.parametrize("number", ["nan", "inf", "0", "-5", "soon"])
def test_a_limit_that_no_run_can_have_is_refused(call, tmp_path, number):
    told = ended(call(PYTHON, LIMIT=number))
    assert told.returncode == 2 and told.stderr.startswith("error: LIMIT and GRACE are numbers of seconds")
    assert not (tmp_path / "work" / "stages.csv").exists()


def test_a_limit_without_time_for_the_packages_says_so(call):
    told = ended(call(PYTHON, LIMIT="2"))
    assert told.returncode == 1 and "there was no time to look for the packages: set a longer LIMIT" in told.stdout


def test_stages_beside_each_other_run_at_the_same_time(call, tmp_path):
    """Each waits for a file of the other."""
    waits = 'touch "$WORK/{}"; while ! [ -e "$WORK/{}" ]; do sleep 0.1; done ;;\n    *parity*'
    program = PYTHON.replace("*parity*", "*test_splats*) " + waits.format("one", "other"))
    told = ended(
        call(
            program,
            STAGE='echo "cache: $cache_name"; touch "$WORK/other"; while ! [ -e "$WORK/one" ]; do sleep 0.1; done',
        )
    )
    assert told.returncode == 0 and {*map(statuses(tmp_path).get, TOGETHER)} == {"0"}
    log = (tmp_path / "work" / "logs" / "parity.log").read_text()
    assert log == "cache: own-parity\n"  # compilations would wait for each other's lock


def test_the_calls_together_have_all_stages_and_a_rehearsal_has_them_at_small_sizes(tmp_path):
    listed, rehearsed = (stages(Place(device, "python3", tmp_path, "peer")) for device in ("cuda", "cpu"))
    assert {stage.call for stage in listed} == {ALWAYS, FIRST, REST}
    assert [s.name for s in listed if s.name != "cache"] == [stage.name for stage in rehearsed]
    names = [s.name for asked in ("", "rest") for group in gpu_run.chosen(listed, asked) for s in group]
    assert {*names} == {stage.name for stage in listed}
    small = {stage.name: stage.command for stage in rehearsed}
    assert all("--rehearse" in command for command in small.values() if "benchmarks.gpu_steps" in command)
    assert all("train.end_iter=8" in small[f"{name}_train"] for name in ("bunny", "lego", "gaussians", "demo_tf32"))


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
    assert [*statuses(tmp_path)][-1] == "parity" and rows(tmp_path)[-1][1] == gpu_run.STOPPED
    assert "| parity | stopped |" in (tmp_path / "out" / "results.md").read_text()


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_stage_with_its_children_and_the_run(call, tmp_path, name):
    def as_from_a_terminal():
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    program = call(PYTHON, STAGE=TAKES_LONG)  # written once: a running program cannot be written
    running = subprocess.Popen(
        **program,
        preexec_fn=as_from_a_terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    pids = waited_for(lambda: numbers(tmp_path))
    second = ended(program)
    assert second.returncode == 2 and "another call" in second.stderr
    running.send_signal(getattr(signal, f"SIG{name}"))
    told, _ = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + getattr(signal, f"SIG{name}") and f"stopped by SIG{name}" in told
    check_stopped(tmp_path, pids)

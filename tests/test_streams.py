"""Output consists of printable lines; a closed, full or missing stream changes neither the work nor the exit status."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bad_input_builders import BREAKING, FORGED, FULL_LOG, broken_streams, dies, prints_much_into_a_full_log
from runs import ROOT, SHORT, command, contents, run, saved

from data.io import streams
from data.io.bars import Bar
from data.io.child import run_apart
from models.monitoring.logger import RunLogger

PROGRAM = ROOT / "exp_runner.py"
# How a shell starts a program whose streams are no good; {} is the command.
REDIRECTIONS = {
    "stdin closed": "{} <&-",
    "stdout closed": "{} >&-",
    "stderr closed": "{} 2>&-",
    "all closed": "{} <&- >&- 2>&-",
    "stdout full": "{} >/dev/full",
    "stderr full": "{} 2>/dev/full",
    "both full": "{} >/dev/full 2>&1",
    "nobody reads": "{} 2>&1 | true; exit ${{PIPESTATUS[0]}}",
    "not for writing": "{} 1</dev/null 2</dev/null",
    "each in its way": "{} <&- 2>/dev/full | true; exit ${{PIPESTATUS[0]}}",
}


def shell(redirection, words, cwd=None):
    """Run a command under one of REDIRECTIONS."""
    quoted = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in words)
    return subprocess.run(
        ["bash", "-c", REDIRECTIONS[redirection].format(quoted)], cwd=cwd, capture_output=True, text=True, timeout=300
    )


# one line each


@pytest.mark.parametrize("name", BREAKING)
def test_no_value_forges_a_line_or_steers_the_terminal(name, tmp_path, capsys, monkeypatch):
    text = f"photograph a{BREAKING[name]}{FORGED}"
    screen = io.StringIO()
    with RunLogger(tmp_path) as log:
        log.info(text, "and another line")
        log.warn(text)
        log.note(text)
        log.scalars(1, {text: 1.0})
        with log.progress(2, file=screen, desc=text, mininterval=0) as bar:
            bar.set_postfix_str(text)
            bar.update()
    streams.say(text)
    streams.complain(text)
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 3 and captured.err.count("\n") == 2
    recorded = (tmp_path / "logs/train.log").read_bytes().decode("utf-8")
    assert [line.split(" ", 2)[1] for line in recorded.split("\n")[:-1]] == ["INFO", "INFO", "WARNING", "INFO"]
    drawn = screen.getvalue().replace("\r", "").removesuffix("\n")
    for shown in (captured.out, captured.err, recorded):
        assert all(line.isprintable() for line in shown.split("\n"))
        assert FORGED in shown and f"\n{FORGED}" not in shown
    assert drawn.isprintable()


# streams that take nothing


@pytest.mark.parametrize("name", broken_streams())
def test_no_broken_stream_raises(name, tmp_path, monkeypatch):
    stream = broken_streams()[name]
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    streams.say("a")
    streams.complain("b")
    streams.redraw("c", end="\n")
    with RunLogger(tmp_path) as log:
        bar = log.progress(range(3), mininterval=0)
        for _ in bar:
            log.info("d")
            log.warn("e")
        assert list(log.progress(range(3), file=stream, mininterval=0)) == [0, 1, 2]
    assert (tmp_path / "logs/train.log").read_text().count("\n") == 6
    assert not list(getattr(Bar, "_instances", ())), "no bar is left to be drawn again"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16", "utf-7", "cp037", "idna", "punycode", "none"])
def test_any_encoding_shows_one_line(encoding, monkeypatch):
    screen = io.BytesIO()
    usable = streams.usable_encoding(encoding)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen, encoding=usable, newline="\n"))
    streams.say("\u03c0\n\ud800\x85")
    assert screen.getvalue().decode(usable).replace("\u03c0", "\\u03c0") == "\\u03c0\\n\\ud800\\x85\n"


@pytest.mark.cli
@pytest.mark.parametrize("redirection", REDIRECTIONS)
@pytest.mark.parametrize(("argv", "status"), [(["--help"], 0), (["--mode", "trian"], 2)], ids=["help", "mistake"])
def test_help_and_mistakes_keep_their_status(redirection, argv, status, tmp_path):
    done = shell(redirection, [sys.executable, PROGRAM, *argv], tmp_path)
    assert done.returncode == status and "Traceback" not in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cli
@pytest.mark.parametrize("redirection", ["all closed", "both full"])
def test_a_fault_of_the_program_keeps_its_status(redirection):
    program = "import exp_runner\nexp_runner.main = lambda: 1 / 0\nexp_runner._leave(exp_runner._start())"
    assert shell(redirection, [sys.executable, "-c", program], ROOT).returncode == 1


@pytest.mark.cli
def test_a_fault_of_the_program_is_shown_line_by_line():
    program = "import exp_runner\ndef main():\n    raise ValueError('a\\x1b[2J\\x85b')\n"
    program += "exp_runner.main = main\nexp_runner._leave(exp_runner._start())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("\nValueError: a\\x1b[2J\\x85b\n")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run(folder) == 0
    return folder


# Each mode in turn, in one process: Jittor is loaded once.
ALL_MODES = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import exp_runner
def main():
    from models.commands import plan_table
    from models.results import interpolation as video
    video.VIDEO_FRAMES, plan_table.IMPORTANCES = 2, ()
    statuses = [exp_runner.main(argv) for argv in json.loads(sys.argv[3])]
    Path(sys.argv[2]).write_text(json.dumps(statuses))
    return 0
first = exp_runner.main
exp_runner.main = lambda argv=None: first(argv) if argv else main()
exp_runner._leave(exp_runner._start())
"""


@pytest.mark.cli
@pytest.mark.parametrize("redirection", ["each in its way", "all closed"])
def test_every_mode_does_its_work_whatever_its_streams_are(redirection, undisturbed, tmp_path):
    def argv(mode, *more, settings=SHORT):
        return command(tmp_path / "run", *(("--mode", mode) if mode else ()), *more, settings=settings)[2:]

    few = (*SHORT, "model.neus_renderer.n_importance=0", "train.ray_chunk=64")
    modes = [
        argv(""),
        argv("validate_image", "--resolution_level", "8"),
        argv("validate_mesh", "--resolution", "16"),
        argv("validate_mesh", "--resolution", "16", "--mcube_threshold", "50"),  # no surface
        argv("interpolate_0_1", "--resolution_level", "4"),
        argv("evaluate", "--resolution", "16", settings=(*SHORT, "dataset.test_dir=")),
        argv("prepare", "--images", "nowhere"),  # a mistake
        argv("inspect"),
        argv("plan", settings=few),
    ]
    told = tmp_path / "statuses"
    done = shell(redirection, [sys.executable, "-c", ALL_MODES, ROOT, told, json.dumps(modes)], tmp_path)
    assert done.returncode == 0
    assert json.loads(told.read_text()) == [0, 0, 0, 2, 0, 0, 2, 0, 0]
    folder = tmp_path / "run"
    assert contents(saved(folder, 6)) == contents(saved(undisturbed, 6))
    for name in ("validations_fine/00000006_0_0.png", "meshes/00000006.ply", "render/00000006_0_1.mp4"):
        assert (folder / name).stat().st_size > 0
    assert (folder / "inspect/health.md").is_file() and (folder / "report/metrics.json").is_file()
    log = (folder / "logs/train.log").read_text()
    assert "trained to step 6" in log and "mesh of" in log and "video" in log


# the descriptors


DESCRIPTORS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from data.io.streams import secure
secure()
with open(sys.argv[2], "w+b") as file:
    print("from Python"), print("and more", file=sys.stderr), sys.stdin.read()
    os.write(1, b"from C"), os.write(2, b"from C")
    os.system("echo from a child; echo from a child >&2")
    file.write(b"%d" % file.fileno())
"""


@pytest.mark.cli
@pytest.mark.parametrize("redirection", ["stdin closed", "stdout closed", "stderr closed", "all closed"])
def test_no_file_takes_the_place_of_a_closed_stream(redirection, tmp_path):
    path = tmp_path / "checkpoint"
    words = [sys.executable, "-c", DESCRIPTORS, ROOT, path]
    done = subprocess.run(
        ["bash", "-c", REDIRECTIONS[redirection].format('"$@"'), "bash", *words], stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0 and int(path.read_bytes()) > 2


@pytest.mark.cli
def test_a_stream_that_takes_some_takes_all_of_it(tmp_path):
    """A pipe that does not wait: what has no room waits for the reader."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    text = "a" * 300_000
    program = "import os, sys\nsys.path.insert(0, sys.argv[1])\nfrom data.io.streams import secure\nsecure()\n"
    program += "sys.stdout.write('a' * 300_000)\nsys.stdout.flush()"
    with subprocess.Popen([sys.executable, "-c", program, str(ROOT)], stdout=writer):
        os.close(writer)
        with open(reader, encoding="ascii") as file:
            assert file.read() == text


def test_a_child_whose_log_is_full_does_its_work(tmp_path):
    events = []
    assert run_apart(prints_much_into_a_full_log, log=tmp_path / "log", on_event=events.append) == 3
    assert events == ["half"] and (tmp_path / "log").stat().st_size <= FULL_LOG


def test_a_log_that_is_no_file_is_neither_read_nor_written():
    with pytest.raises(OSError, match="it is not a file"):
        run_apart(dies, log=Path("/dev/full"))


# libraries


LIBRARIES = """
import sys
sys.path.insert(0, sys.argv[1])
from data.io.quiet import silence_libraries
silence_libraries()
import logging, warnings
import cv2, numpy as np
warnings.warn("a warning"), np.float32(1e38) * np.float32(1e38), np.array([1.0]) / 0
logging.getLogger("trimesh").warning("a record"), logging.error("another")
cv2.imread("nowhere.png"), cv2.VideoCapture("nowhere.mp4")
"""


@pytest.mark.cli
def test_libraries_say_nothing():
    done = subprocess.run([sys.executable, "-c", LIBRARIES, ROOT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

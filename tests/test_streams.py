"""Output consists of printable lines; a closed, full or missing stream changes neither the work nor the exit status."""

import io
import os
import subprocess
import sys
from types import ModuleType

import pytest
from bad_input_builders import BREAKING, FORGED, broken_streams
from runs import ROOT, command, contents, run, saved

from data.io import streams
from models.runs.logger import RunLogger

PROGRAM = ROOT / "exp_runner.py"
REDIRECTIONS = {
    "all closed": "{} <&- >&- 2>&-",
    "both full": "{} >/dev/full 2>&1",
    "nobody reads": "{} 2>&1 | true; exit ${{PIPESTATUS[0]}}",
    "each in its way": "{} <&- 2>/dev/full | true; exit ${{PIPESTATUS[0]}}",
}
SECURE = "import os, sys\nsys.path.insert(0, sys.argv[1])\nfrom data.io.streams import secure\nsecure()\n"


def shell(redirection, words, cwd=None):
    """Run a Python program under one of REDIRECTIONS."""
    program = ["bash", "-c", REDIRECTIONS[redirection].format('"$@"'), "bash", sys.executable, *map(str, words)]
    return subprocess.run(program, cwd=cwd, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("name", BREAKING)
def test_no_value_forges_a_line_or_steers_the_terminal(name, tmp_path, capsys):
    text, screen = f"photograph a{BREAKING[name]}{FORGED}", io.StringIO()
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
    assert screen.getvalue().replace("\r", "").removesuffix("\n").isprintable()
    for shown in (captured.out, captured.err, recorded):
        assert all(line.isprintable() for line in shown.split("\n"))
        assert FORGED in shown and f"\n{FORGED}" not in shown


@pytest.mark.parametrize("name", broken_streams())
def test_no_broken_stream_raises(name, tmp_path, monkeypatch):
    stream = broken_streams()[name]
    for place in ("stdout", "stderr"):
        monkeypatch.setattr(sys, place, stream)
    streams.say("a")
    streams.complain("b")
    streams.redraw("c", end="\n")
    with RunLogger(tmp_path) as log:
        log.info("d")
        log.warn("e")
    assert (tmp_path / "logs/train.log").read_text().count("\n") == 2


def test_any_encoding_shows_one_line(monkeypatch):
    for encoding in ("ascii", "utf-16"):
        screen = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(screen, encoding=encoding, newline="\n"))
        streams.say("\u03c0\n\ud800\x85")
        assert screen.getvalue().decode(encoding).replace("\u03c0", "\\u03c0") == "\\u03c0\\n\\ud800\\x85\n"


@pytest.mark.cli
@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_help_and_mistakes_keep_their_status(redirection, tmp_path):
    for argv, status in ((["--help"], 0), (["--mode", "trian"], 2)):
        done = shell(redirection, [PROGRAM, *argv], tmp_path)
        assert done.returncode == status and "Traceback" not in done.stderr + done.stdout
        assert list(tmp_path.iterdir()) == []


@pytest.mark.cli
def test_a_fault_of_the_program_keeps_its_status_and_is_shown_by_lines():
    program = "import exp_runner\ndef main():\n    raise ValueError('a\\x1b[2J\\x85b')\n"
    program += "exp_runner.main = main\nexp_runner._leave(exp_runner._start())"
    assert shell("all closed", ["-c", program], ROOT).returncode == 1
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("\nValueError: a\\x1b[2J\\x85b\n")


@pytest.mark.cli
def test_a_training_does_its_work_whatever_its_streams_are(tmp_path):
    assert shell("each in its way", command(tmp_path / "run")[1:], tmp_path).returncode == 0
    assert run(tmp_path / "undisturbed") == 0
    assert contents(saved(tmp_path / "run", 6)) == contents(saved(tmp_path / "undisturbed", 6))
    assert "trained to step 6" in (tmp_path / "run/logs/train.log").read_text()


# What is closed at the start may not become the number of a file, into which a library would print.
DESCRIPTORS = """
with open(sys.argv[2], "w+b") as file:
    os.write(1, b"from C"), os.system("echo from a child >&2")
    file.write(b"%d" % file.fileno())
"""


@pytest.mark.cli
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path):
    assert shell("all closed", ["-c", SECURE + DESCRIPTORS, ROOT, tmp_path / "checkpoint"]).returncode == 0
    assert int((tmp_path / "checkpoint").read_bytes()) > 2


@pytest.mark.cli
def test_a_stream_that_takes_some_takes_all_of_it():
    """A pipe that does not wait: what has no room waits for the reader."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    program = SECURE + "sys.stdout.write('a' * 300_000)\nsys.stdout.flush()"
    with subprocess.Popen([sys.executable, "-c", program, str(ROOT)], stdout=writer):
        os.close(writer)
        with open(reader, encoding="ascii") as file:
            assert file.read() == "a" * 300_000


@pytest.mark.cli
def test_libraries_say_nothing():
    program = SECURE + "from data.io.streams import silence_libraries; silence_libraries()\n"
    program += "import logging, warnings, cv2, numpy as np\n"
    program += 'warnings.warn("a warning"), np.array([1.0]) / 0, logging.error("a record"), cv2.imread("nowhere.png")'
    done = subprocess.run([sys.executable, "-c", program, ROOT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_message_is_printed_while_another_thread_imports_the_bars(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", ModuleType("tqdm"))  # not yet with its contents
    streams.complain("compiling")
    assert capsys.readouterr().err == "compiling\n"

"""What `make cuda-check` says, with and without what it needs."""

import errno
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest
from cuda_machines import toolkit

from benchmarks import cuda_check, cuda_check_toolkit
from benchmarks import cuda_check_answers as answers
from benchmarks.shapes import ROOT
from models.methods.conf import load_config
from models.methods.registry import METHODS

GOOD = {"vars": [66, 66], "ops": [0, 0], "host_ms": 4.0, "kernels": 300.0, "compiled": 3, "compile_seconds": 12.0}
GOOD |= {"first_seconds": 20.0, "allocations": 0, "late_vars": [70, 70], "late_ops": [0, 0], "on_card": 9}
GOOD |= {"codes": [80, 90], "on_host": [], "meant_for_host": 2}
ONE_WAIT = {"median": 1, "most": 1, "bytes": 1, "most_bytes": 1}
GOOD |= {"waits": ONE_WAIT, "late_waits": ONE_WAIT | {"most": 5, "most_bytes": 4096}}
RELEASED = {"host_ms": 5.0, "operations": 28, "kernels": 100.0, "pool_mib": 700.0, "allocations": 0, "waits": ONE_WAIT}


@pytest.fixture
def check(monkeypatch, tmp_path):
    """A function that checks with these toolkits, pip ending with these words, and processes answering that."""

    def run(toolkits, arguments=(), answers=(), pip="no network"):
        left = list(answers)
        monkeypatch.setattr(cuda_check_toolkit.search, "toolkits", lambda *given: toolkits)
        monkeypatch.setattr(cuda_check, "pretended_card", lambda toolkit, codes, cache: asked.append(list(codes)))
        monkeypatch.setattr(cuda_check, "_worker", lambda *given: left.pop(0))
        for name in ("_adopt_orphans", "_bury_orphans"):  # the orphans of other tests are theirs
            monkeypatch.setattr(cuda_check, name, lambda: None)
        monkeypatch.setenv("JITTOR_HOME", str(tmp_path / "home"))
        ended = SimpleNamespace(returncode=pip, stderr=f"{pip}\n")
        monkeypatch.setattr(cuda_check_toolkit.subprocess, "run", lambda *given, **named: ended)
        return cuda_check.main(list(arguments))

    asked = run.asked = []
    return run


@pytest.mark.parametrize("toolkits", [[], [toolkit((11, 8))], [toolkit((14, 0))]])
def test_without_an_nvcc_it_is_skipped_with_the_reason(check, capsys, toolkits):
    assert check(toolkits) == 0 and "skipped: there is no nvcc" in capsys.readouterr().out


def test_pip_on_a_full_disk_is_no_reason_to_skip_and_its_long_words_are_cut(check, capsys):
    bare = [toolkit(without=("cublas_v2.h",))]
    assert check(bare, pip=f"{'a file, ' * 900}[Errno 28] No space left on device: x") == 2
    assert "No space left on device: make room" in (text := capsys.readouterr().err) and len(text) < 400
    assert check(bare, pip="word " * 900) == 0 and len(capsys.readouterr().out) < 400


def test_where_jittor_never_started_the_cache_is_made(check, tmp_path):
    assert check([toolkit()], ["--conf", "debug", "--no-host"], [GOOD]) == 0
    assert (tmp_path / "home" / ".cache" / "jittor").is_dir()


def test_a_home_that_cannot_be_written_to_is_one_sentence(check, capsys, tmp_path):
    (tmp_path / "home").write_text("a file")
    assert check([toolkit()], ["--conf", "debug"]) == 2
    assert (text := capsys.readouterr().err).count("\n") == 1 and "set HOME (or JITTOR_HOME)" in text


FULL = OSError(errno.ENOSPC, "No space left on device", "/some/folder")


@pytest.mark.parametrize(
    ("module", "name", "failure"),
    [
        (cuda_check_toolkit.tempfile, "mkdtemp", FULL),
        (cuda_check_toolkit, "build", FULL),
        (cuda_check_toolkit, "build", subprocess.CalledProcessError(1, "gcc", stderr="x:\nNo space left on device\n")),
        (cuda_check_toolkit, "renew", FULL),
    ],
)
def test_a_full_disk_is_one_sentence_and_nothing_half_made_is_left(
    monkeypatch, capsys, tmp_path, module, name, failure
):
    def fails(*given, **named):
        raise failure

    monkeypatch.setenv("JITTOR_HOME", str(tmp_path))
    monkeypatch.setattr(cuda_check_toolkit.search, "toolkits", lambda *given: [toolkit()])
    monkeypatch.setattr(cuda_check_toolkit, "build", lambda *given: None)
    monkeypatch.setattr(module, name, fails)
    assert cuda_check.main(["--conf", "debug"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and text.count("\n") == 1 and "No space left" in text and "make room" in text
    assert {path.name.partition("-")[0] for path in (tmp_path / ".cache" / "jittor").iterdir()} <= {"cuda"}


def test_a_folder_that_another_process_has_made_meanwhile_is_taken(monkeypatch, tmp_path):
    def build_slowly(toolkit, codes, scratch):
        other = tmp_path / f"cuda-pretend-{cuda_check_toolkit.key(toolkit, codes)}"
        other.mkdir()
        (other / "its").touch()

    monkeypatch.setattr(cuda_check_toolkit, "build", build_slowly)
    monkeypatch.setattr(cuda_check_toolkit, "renew", lambda made: None)
    made = cuda_check_toolkit.pretended_card(toolkit(), [90], tmp_path)
    assert (made.folder / "its").exists() and len(list(tmp_path.iterdir())) == 1


def test_headers_that_cannot_be_fetched_are_a_reason_to_skip(check, capsys):
    assert check([toolkit(without=("cublas_v2.h",))]) == 0
    assert "skipped: the headers of" in (text := capsys.readouterr().out) and "no network" in text


def test_a_conf_that_compiles_and_leaves_nothing_behind_is_well(check, capsys):
    assert check([toolkit()], ["--conf", "debug", "--no-host"], [GOOD]) == 0
    text = capsys.readouterr().out
    assert "ok     debug: 30 steps, variables 66, operations 0, half-way 70 and 0; 4.0 ms of the host" in text
    assert "the host waits 1 times a step (at most 5) and reads 1 bytes (at most 4096); 9 operations with" in text
    assert "operations with code for 8.0 and 9.0, 2 meant for the host; 3 compiled" in text


def test_pictures_meshes_and_the_doctors_examples_are_compiled_too(check, capsys):
    assert check([toolkit()], ["--conf", "wmask", "--no-host"], [GOOD | {"of_results": 4}]) == 0
    assert "4 of them only pictures and meshes use" in capsys.readouterr().out
    names = [case for case, _ in cuda_check.cases(sorted(path.stem for path in (ROOT / "confs").glob("*.conf")))]
    examples = {"examples": 30, "on_card": 50, "codes": [80, 90], "on_host": []}
    assert check([toolkit()], ["--no-host"], [*[GOOD] * len(names), examples]) == 0
    assert "ok     the doctor's examples of 30 operations, forward and backward: 50" in capsys.readouterr().out
    for bad in ({"error": "it does not compile"}, examples | {"codes": [90]}, examples | {"on_host": ["transpose"]}):
        assert check([toolkit()], ["--no-host"], [*[GOOD] * len(names), bad]) == 1
        text = capsys.readouterr().out
        assert "WRONG  the doctor's examples" in text and "not well: the doctor's examples" in text


@pytest.mark.slow
def test_one_conf_of_each_kind_is_shown():
    kinds = {load_config(ROOT / f"confs/{name}.conf", "check", ()).model.type for name in cuda_check.SHOWN}
    assert kinds == set(METHODS)


BAD = [
    {"error": "it does not compile"},
    *(GOOD | {kind: [66, 70]} for kind in ("vars", "ops", "late_vars", "late_ops")),
    GOOD | {"codes": [90]},
    GOOD | {"on_host": ["transpose"]},
    *(GOOD | {when: ONE_WAIT | {"median": 2}} for when in ("waits", "late_waits")),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_conf_that_does_not_is_named_and_the_others_are_checked(check, capsys, bad):
    arguments = ["--conf", "geo", "--conf", "debug", "--no-host"]
    assert check([toolkit()], arguments, [bad, GOOD]) == 1
    text = capsys.readouterr().out
    assert "WRONG  geo: " in text and "ok     debug" in text and "not well: geo" in text


def test_a_conf_whose_step_is_another_without_masks_is_checked_without_them_too(check, capsys):
    assert check([toolkit()], ["--conf", "fast", "--no-host"], [GOOD, GOOD | {"on_host": ["where"]}]) == 1
    assert "WRONG  fast without masks, with points: " in capsys.readouterr().out


def test_one_capability_is_enough_where_one_is_asked_for(check):
    assert check([toolkit()], ["--conf", "debug", "--no-host", "--one"], [GOOD | {"codes": [90]}]) == 0


def test_capabilities_that_are_asked_for_are_compiled_for_the_highest_is_the_card(check, capsys):
    arguments = ["--conf", "debug", "--no-host", "--capability", "12.0", "--capability", "7.5"]
    assert check([toolkit()], arguments, [GOOD | {"codes": [75, 120]}]) == 0
    assert check.asked == [[75, 120]] and "code for 7.5 and 12.0" in capsys.readouterr().out


WRONG_FLAGS = [
    (["--capability", "7.0"], "--capability 7.0: nvcc compiles for 7.5, 8.0"),
    (["--capability", "3.5", "--conf", "wmask", "--first"], "--capability 3.5: nvcc compiles for"),
    *((["--capability", text], f"--capability: {text!r}: write it as 9.0") for text in ("new", "9", "9.0.1", "9.10")),
    *((["--steps", text], f"--steps: {text!r}: must be a whole number") for text in ("0", "-3", "some", "1e9", "")),
    (["--conf", "nope", "--first"], "--conf: 'nope' is no conf of confs/; known: "),
    (["--conf", "wmask", "--conf", "wmsk"], "'wmsk' is no conf of confs/; did you mean wmask?"),
    (["--foo"], "unrecognized arguments: --foo"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG_FLAGS)
def test_a_flag_that_makes_no_sense_ends_it_before_anything_is_fetched_or_made(
    check, capsys, tmp_path, arguments, sentence
):
    assert check([toolkit(without=("cublas_v2.h",))], arguments) == 2
    text = capsys.readouterr()
    assert text.out == "" and text.err.startswith("error: ") and sentence in text.err and text.err.count("\n") == 1
    assert not (tmp_path / "home").exists()


def _program(kind, capability, payload=40):
    """An entry of a fatbin as nvcc 13 writes it."""
    head = struct.pack("<HHIQ", kind, 257, 64, payload) + bytes(12) + struct.pack("<I", capability)
    return head.ljust(64, b"\0") + bytes(payload)


def test_the_capabilities_are_read_from_a_library_that_nvcc_made(tmp_path):
    entries = _program(2, 80) + _program(2, 90, 72) + _program(1, 75)  # the last one is text for the driver
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    library = tmp_path / "op.so"
    library.write_bytes(b"before" + fatbin + b"between" + fatbin + b"after")
    assert answers.capabilities(library) == {80, 90}
    library.write_bytes(b"a library of the host")
    assert answers.capabilities(library) == set()


def test_targets_of_the_released_size_are_told(check, capsys):
    plain = RELEASED | {"host_ms": 25.0, "operations": 500}
    assert check([toolkit()], ["--conf", "debug"], [GOOD, RELEASED, plain]) == 0
    text = capsys.readouterr().out
    assert "memory asked of the card 0 times in 30 steps, the host waits 1 times a step" in text
    assert "target host time <= 0.25 of plain (0.20): reached" in text and "operations <= 30: reached" in text
    assert check([toolkit()], ["--conf", "debug", "--no-plain"], [GOOD, RELEASED | {"operations": 480}]) == 1
    assert "WRONG  target operations <= 30: missed" in (text := capsys.readouterr().out) and "of plain" not in text


def test_a_first_start_is_weighed_with_all_that_it_compiles(check, capsys):
    first = {"compiled": 34, "compile_seconds": 100.0}
    assert check([toolkit()], ["--first", "--one"], [first]) == 0
    text = capsys.readouterr().out
    assert "100 in the step, 34 operations" in text and "target 400 processor seconds: reached" in text
    assert check([toolkit()], ["--first"], [{"error": "it does not compile"}]) == 1


def test_a_first_start_that_takes_too_long_is_wrong(check, capsys, monkeypatch):
    monkeypatch.setattr(cuda_check, "MOST_COMPILED", -1)
    assert check([toolkit()], ["--first", "--one"], [{"compiled": 34, "compile_seconds": 100.0}]) == 1
    assert "WRONG  target -1 processor seconds: missed" in capsys.readouterr().out


def test_an_interruption_is_a_sentence(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cuda_check, "found_compiler", interrupted)
    assert cuda_check.main([]) == cuda_check.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "interrupted: what is compiled by now is kept\n"


@pytest.mark.cli
def test_jittor_is_not_loaded_before_the_card_is_chosen():
    program = "import sys, benchmarks.cuda_check_worker; sys.exit('jittor' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0

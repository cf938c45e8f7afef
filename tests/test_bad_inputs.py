"""Bad inputs through the command line: one sentence on stderr, exit status 2, nothing written, nothing run."""

import ast
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from bad_input_builders import CONF
from bad_inputs import BAD_INPUTS
from checkpoint_samples import make_checkpoint
from synthetic_scene import write_scene

import exp_runner
from data.io.quiet import native_stderr_silenced
from models.checkpoints.ours import save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
# A warning of Python's would be a second message: here it is an error, and so a traceback.
pytestmark = pytest.mark.filterwarnings("error")


class NoRunner:
    """Stands where Jittor would be loaded: no bad input may get there."""

    def __init__(self, experiment, log):
        raise AcceptedError


class AcceptedError(Exception):
    """The command line found nothing wrong."""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    write_scene(folder / "teapot")
    (folder / "exp").mkdir()
    (folder / "x.conf").write_text(CONF)
    return folder


@pytest.fixture
def work(good, tmp_path, monkeypatch):
    """A copy of the good folder, as the working folder."""
    monkeypatch.setitem(sys.modules, "models.runner", ModuleType("models.runner"))
    sys.modules["models.runner"].Runner = NoRunner
    folder = shutil.copytree(good, tmp_path / "work")
    monkeypatch.chdir(folder)
    return folder


def listing(folder):
    """Every file and folder with its size and time of change."""
    found = {path: path.lstat() for path in folder.parent.rglob("*")}
    return {path: (status.st_size, status.st_mtime_ns, status.st_mode) for path, status in found.items()}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_a_bad_input_is_one_sentence_exit_2_and_no_file_written(name, work, capfd):
    change, words = BAD_INPUTS[name]
    argv = change(work) or []
    before = listing(work)
    assert exp_runner.main(["--conf", "x.conf", *argv]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("error: ") and err.endswith("\n") and err[:-1].isprintable()
    assert [word for word in words if word not in err] == [], err
    assert len(err) < 2100
    assert listing(work) == before


def test_one_damaged_checkpoint_in_the_folder_is_a_warning_and_a_sentence(work, capfd):
    path = save_checkpoint(work / "exp/checkpoints", make_checkpoint())
    path.write_bytes(path.read_bytes()[:-1])
    before = listing(work)
    assert exp_runner.main(["--conf", "x.conf", "--is_continue"]) == 2
    warning, sentence = capfd.readouterr().err.splitlines()
    assert "Trying the previous checkpoint" in warning and sentence.startswith("error: None of the 1 checkpoints")
    assert listing(work) == before


NAMED_BY_THE_CASE = [f"--set=dataset.{kind}_cameras_name=CASE_NAME.npz" for kind in ("render", "object")]
NAMED_BY_THE_CASE += ["--set=dataset.data_dir=./${case}/", "--set=general.base_exp_dir=./exp/CASE_NAME"]


@pytest.mark.parametrize("name", ["a b", "-rf", "a.b", "é_+x"])
def test_a_name_is_never_more_than_a_name(name, work):
    (work / "teapot").rename(work / name)
    for path in sorted((work / name / "image").iterdir()):
        path.rename(path.with_name(f"{name}{path.name}"))
    (work / name / "cameras_sphere.npz").rename(work / name / f"{name}.npz")
    with pytest.raises(AcceptedError):
        exp_runner.main(["--conf", "x.conf", f"--case={name}", *NAMED_BY_THE_CASE])


def test_a_name_with_characters_of_a_shell_is_refused(work, capfd):
    before = listing(work)
    for name in ("$(touch sprung)", "`touch sprung`", ";touch sprung;", "a'b", 'a"b', "a|b>c", "*", "~", "%s"):
        assert exp_runner.main(["--conf", "x.conf", f"--case={name}", *NAMED_BY_THE_CASE]) == 2
        assert capfd.readouterr().err.startswith("error: --case ") and listing(work) == before


def test_a_pipe_among_the_checkpoints_is_passed_over_and_not_waited_for(work, capfd):
    (work / "exp/checkpoints").mkdir()
    os.mkfifo(work / "exp/checkpoints/ckpt_000009.safetensors")
    assert exp_runner.main(["--conf", "x.conf", "--is_continue"]) == 2
    assert "it is not a file" in capfd.readouterr().err


def test_what_c_libraries_write_is_dropped_and_what_comes_after_is_not(capfd):
    with native_stderr_silenced():
        os.write(2, b"libpng error")
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


# What runs, unpickles or fetches what it is given; subprocess is the toolchain's, with programs it names itself.
FORBIDDEN = {"eval", "exec", "compile", "os.system", "os.popen", "pickle.load", "pickle.loads", "np.load", "urlopen"}
FORBIDDEN |= {"pickle.Unpickler", "torch.load", "yaml.load", "marshal.loads", "urlretrieve", "requests.get"}


def calls(path):
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]


@pytest.mark.slow
def test_no_module_calls_what_could_run_or_fetch_what_a_file_says():
    paths = [*(ROOT / "data").rglob("*.py"), *(ROOT / "models").rglob("*.py"), ROOT / "exp_runner.py"]
    assert len(paths) > 40
    for call in (call for path in paths for call in calls(path)):
        assert ast.unparse(call.func) not in FORBIDDEN
        told = [word.arg for word in call.keywords if ast.unparse(word.value) != "False"]
        assert not {"shell", "allow_pickle"} & set(told)

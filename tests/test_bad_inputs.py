"""Bad inputs through the command line: one sentence on stderr, exit status 2, nothing written, nothing run."""

import ast
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest
from bad_input_builders import CONF
from bad_inputs import BAD_INPUTS
from checkpoint_samples import make_checkpoint
from synthetic_scene import write_scene

import exp_runner
from data.io.streams import native_stderr_silenced
from models.checkpoints.ours import save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
# A warning of Python's would be a second message: here it is an error, and so a traceback.
pytestmark = pytest.mark.filterwarnings("error")


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
    monkeypatch.setitem(sys.modules, "models.commands.runner", ModuleType("models.commands.runner"))
    sys.modules["models.commands.runner"].Runner = Mock(side_effect=AcceptedError)  # where Jittor would be loaded
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
    assert exp_runner.main(argv if "--conf" in argv else ["--conf", "x.conf", *argv]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("error: ") and err.endswith("\n") and err[:-1].isprintable()
    assert [word for word in words if word not in err] == [], err
    assert len(err) < 2100
    assert listing(work) == before


def test_damaged_checkpoints_and_pipes_are_warnings_and_a_sentence(work, capfd):
    path = save_checkpoint(work / "exp/checkpoints", make_checkpoint())
    path.write_bytes(path.read_bytes()[:-1])
    os.mkfifo(work / "exp/checkpoints/ckpt_000009.safetensors")
    before = listing(work)
    assert exp_runner.main(["--conf", "x.conf", "--is_continue"]) == 2
    pipe, damaged, sentence = capfd.readouterr().err.splitlines()
    assert "it is not a file" in pipe and "Trying the previous checkpoint" in damaged
    assert sentence.startswith("error: None of the 2 checkpoints") and listing(work) == before


NAMED_BY_THE_CASE = ["--set=dataset.data_dir=./${case}/", "--set=general.base_exp_dir=./exp/CASE_NAME"]


@pytest.mark.parametrize("name", ["a b", "-rf", "a.b", "é_+x"])
def test_a_name_is_never_more_than_a_name(name, work):
    (work / "teapot").rename(work / name)
    with pytest.raises(AcceptedError):
        exp_runner.main(["--conf", "x.conf", f"--case={name}", *NAMED_BY_THE_CASE])


def test_a_name_with_characters_of_a_shell_is_refused(work, capfd):
    before = listing(work)
    for name in ("$(touch sprung)", "`touch sprung`", ";touch sprung;", "a'b", 'a"b', "a|b>c", "*", "~", "%s"):
        assert exp_runner.main(["--conf", "x.conf", f"--case={name}", *NAMED_BY_THE_CASE]) == 2
        assert capfd.readouterr().err.startswith("error: --case ") and listing(work) == before


def test_what_c_libraries_write_is_dropped_and_what_comes_after_is_not(capfd):
    with native_stderr_silenced():
        os.write(2, b"libpng error")
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


# What runs, unpickles or fetches what it is given; subprocess is the toolchain's, with programs it names itself.
FORBIDDEN = {"eval", "exec", "compile", "os.system", "os.popen", "pickle.load", "pickle.loads", "np.load", "urlopen"}
FORBIDDEN |= {"pickle.Unpickler", "torch.load", "yaml.load", "marshal.loads", "urlretrieve", "requests.get"}


@pytest.mark.slow
def test_no_module_calls_what_could_run_or_fetch_what_a_file_says():
    paths = [*(ROOT / "data").rglob("*.py"), *(ROOT / "models").rglob("*.py"), ROOT / "exp_runner.py"]
    assert len(paths) > 40
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        assert ast.unparse(call.func) not in FORBIDDEN
        told = [word.arg for word in call.keywords if ast.unparse(word.value) != "False"]
        assert not {"shell", "allow_pickle"} & set(told)

"""The command line: what is refused, with which exit status, and what reaches the runner."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from config_samples import WHOLE, write_conf

import exp_runner
from data.errors import UserError
from models.arguments import Mode, parse_arguments, parse_mode
from models.config import load_config

ROOT = Path(__file__).resolve().parents[1]


class FakeRunner:
    """Records what the command line asks of a runner."""

    calls: list = []

    def __init__(self, conf, **where):
        self.calls.append(("Runner", conf, where))

    def __getattr__(self, name):
        return lambda *args, **kwargs: self.calls.append((name, args, kwargs))


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """A fake models.runner, in an empty working folder."""
    module = ModuleType("models.runner")
    module.Runner = FakeRunner
    monkeypatch.setitem(sys.modules, "models.runner", module)
    monkeypatch.setattr(FakeRunner, "calls", [])
    monkeypatch.chdir(tmp_path)
    return FakeRunner


BAD_COMMAND_LINES = [
    (["--mode", "trian"], "did you mean train?"),
    (["--mode", "validate"], "did you mean validate_"),
    (["--mode", "Train"], "did you mean train?"),
    (["--mode", ""], "unknown mode"),
    (["--mode", "interpolate"], "interpolate_I_J"),
    (["--mode", "interpolate_0"], "interpolate_0_5"),
    (["--mode", "interpolate_0_x"], "interpolate_0_5"),
    (["--mode", "interpolate_-1_2"], "interpolate_0_5"),
    (["--mode", "interpolate_0_1_2"], "interpolate_0_5"),
    (["--mode", "interpolate_\u0663_1"], "interpolate_0_5"),
    (["--mode", "interpolat_0_1"], "did you mean interpolate_I_J?"),
    (["--mode"], "--mode"),
    (["--resoluton", "64"], "did you mean --resolution?"),
    (["--imag", "3"], "did you mean --image?"),
    (["stray"], "stray"),
    (["--resolution", "1"], "2..2048"),
    (["--resolution", "2049"], "2..2048"),
    (["--resolution", "64.5"], "64.5"),
    (["--resolution", "9" * 5000], "2..2048"),
    (["--mcube_threshold", "nan"], "finite"),
    (["--mcube_threshold", "inf"], "finite"),
    (["--mcube_threshold", "a"], "finite"),
    (["--image", "-1"], "--image"),
    (["--resolution_level", "0"], "--resolution_level"),
    (["--gpu", "-1"], "--gpu"),
    (["--device", "gpu"], "--device"),
    (["--seed", "-1"], "--seed"),
    (["--seed", "2147483648"], "--seed"),
    (["--checkpoint", "nowhere.pth"], "nowhere.pth"),
    (["--checkpoint", "."], "no such file"),
    (["--overwrite", "--is_continue"], "only one of them"),
    (["--conf", "nowhere.conf"], "nowhere.conf"),
    (["--conf", "."], "cannot be read"),
    (["--case", "../x"], "--case"),
    (["--set", "train.end_iter"], "KEY=VALUE"),
    (["--set", "train.lerning_rate=1"], "did you mean train.learning_rate?"),
    (["--set", "train.end_iter=soon"], "must be a whole number"),
    (["--set", "train.end_iter=1"], "train.warm_up_end"),
    (["--set"], "--set"),
]
BAD_IDS = [" ".join(row[0])[:40] for row in BAD_COMMAND_LINES]


@pytest.mark.parametrize(("argv", "complaint"), BAD_COMMAND_LINES, ids=BAD_IDS)
def test_a_bad_command_line_is_one_sentence_exit_2_and_no_runner(argv, complaint, runner, tmp_path, capsys):
    assert exp_runner.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and complaint in err
    assert runner.calls == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [["--mode", "trian"], ["--set", "x=1"], ["--conf", "nowhere.conf"]], ids=str)
def test_the_program_exits_2_without_a_traceback_before_jittor_is_loaded(argv, tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", ROOT / "exp_runner.py", *argv],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 2 and len(sentences) == 1 and sentences[0].startswith("error: ")
    assert done.stdout == "" and list(tmp_path.iterdir()) == []
    assert "jittor" not in done.stderr


def test_help_is_a_page_that_names_every_flag_and_mode(capsys):
    with pytest.raises(SystemExit) as stopped:
        exp_runner.main(["--help"])
    page = capsys.readouterr().out
    assert stopped.value.code == 0
    flags = (
        "conf mode case is_continue checkpoint mcube_threshold resolution gpu device set seed image resolution_level"
    )
    assert all(f"--{flag} " in page for flag in flags.split())
    assert all(mode in page for mode in ("train", "validate_mesh", "validate_image", "interpolate_I_J", "evaluate"))
    assert "examples:" in page and "exit status:" in page


def test_every_example_of_the_help_page_parses(tmp_path, monkeypatch):
    from models.arguments import EPILOG

    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt_300000.pth").touch()
    examples = [line.split("   ")[0].split() for line in EPILOG.splitlines() if "python exp_runner.py" in line]
    assert len(examples) >= 7
    for words in examples:
        parse_arguments(words[2:])


def test_no_flag_at_all_trains_the_demo_conf():
    arguments = parse_arguments([])
    assert arguments.mode == Mode("train") and arguments.conf is None and not arguments.is_continue
    assert arguments.resolution == 512 and arguments.threshold == 0.0 and arguments.device == "auto"


def test_modes_are_read_exactly():
    assert parse_mode("interpolate_0_12") == Mode("interpolate", (0, 12))
    assert parse_mode("validate_mesh") == Mode("validate_mesh")
    with pytest.raises(UserError):
        parse_mode("validate_mesh ")


DISPATCHED = [
    (["--mode", "train"], "train", (), {"is_continue": False, "checkpoint": None, "overwrite": False}),
    (["--is_continue"], "train", (), {"is_continue": True, "checkpoint": None, "overwrite": False}),
    (["--overwrite"], "train", (), {"is_continue": False, "checkpoint": None, "overwrite": True}),
    (["--checkpoint", "c"], "train", (), {"is_continue": False, "checkpoint": Path("c"), "overwrite": False}),
    (["--mode", "validate_mesh"], "validate_mesh", (None, 512, 0.0), {}),
    (
        ["--mode", "validate_mesh", "--resolution", "64", "--mcube_threshold", "-0.5", "--checkpoint", "c"],
        "validate_mesh",
        (Path("c"), 64, -0.5),
        {},
    ),
    (["--mode", "validate_image", "--image", "3"], "validate_image", (None, 3, 2), {}),
    (["--mode", "validate_image", "--resolution_level", "1"], "validate_image", (None, 0, 1), {}),
    (["--mode", "interpolate_2_7"], "interpolate", (None, 2, 7), {}),
    (["--mode", "evaluate"], "evaluate", (None,), {}),
]


@pytest.mark.parametrize(("argv", "name", "args", "kwargs"), DISPATCHED, ids=[" ".join(row[0]) for row in DISPATCHED])
def test_a_mode_becomes_one_call_of_the_runner(argv, name, args, kwargs, runner, tmp_path):
    (tmp_path / "c").touch()
    assert exp_runner.main([*argv, "--set", "train.validate_resolution_level=2"]) == 0
    assert runner.calls[1:] == [(name, args, kwargs)]


def test_device_gpu_and_seed_reach_the_runner(runner):
    assert exp_runner.main(["--device", "cpu", "--gpu", "2", "--set", "train.seed=5", "--seed", "7"]) == 0
    _, conf, where = runner.calls[0]
    assert where == {"device": "cpu", "gpu": 2} and conf.train.seed == 7


def test_from_elsewhere_the_default_conf_and_its_scene_are_the_programs_own_and_results_stay_here(runner):
    assert exp_runner.main([]) == 0
    conf = runner.calls[0][1]
    assert Path(conf.dataset.data_dir) == ROOT / "data/demo" and Path(conf.dataset.test_dir) == ROOT / "data/demo/test"
    assert Path(conf.dataset.reference_mesh) == ROOT / "data/demo/ground_truth.ply"
    assert conf.general.base_exp_dir == "./exp/demo"


def test_a_scene_that_exists_here_is_not_looked_for_elsewhere(runner, tmp_path):
    (tmp_path / "mine").mkdir()
    assert exp_runner.main(["--set", "dataset.data_dir=mine", "--set", "dataset.test_dir="]) == 0
    dataset = runner.calls[0][1].dataset
    assert dataset.data_dir == "mine" and dataset.test_dir == ""


def test_a_conf_in_the_working_folder_is_taken_as_it_is(runner, tmp_path):
    path = write_conf(tmp_path, WHOLE, "confs/demo.conf")
    assert exp_runner.main([]) == 0
    assert runner.calls[0][1] == load_config(path)


def test_an_empty_surface_exits_1_an_interrupt_130_a_missing_package_2(runner, monkeypatch, capsys):
    from models.surface.extraction import EmptySurfaceError

    def raising(error):
        def evaluate(*_args):
            raise error

        monkeypatch.setattr(FakeRunner, "evaluate", evaluate, raising=False)
        return exp_runner.main(["--mode", "evaluate"])

    assert raising(EmptySurfaceError("nothing there")) == 1
    assert raising(KeyboardInterrupt()) == 130
    assert raising(UserError("no checkpoint")) == 2
    assert raising(ModuleNotFoundError("No module named 'tqdm'", name="tqdm")) == 2
    assert "nothing there" in (err := capsys.readouterr().err) and "pip install -r requirements.txt" in err


def test_a_fault_of_the_program_is_not_hidden(runner, monkeypatch):
    def evaluate(*_args):
        raise ModuleNotFoundError("No module named 'models.nowhere'", name="models.nowhere")

    monkeypatch.setattr(FakeRunner, "evaluate", evaluate, raising=False)
    with pytest.raises(ModuleNotFoundError):
        exp_runner.main(["--mode", "evaluate"])

"""The command line: what is refused, with which exit status, and what reaches the runner."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import exp_runner
from data.errors import UserError
from models.commands.arguments import parse_arguments
from models.requests import EvaluationRequest, MeshRequest

ROOT = Path(__file__).resolve().parents[1]
# A mesh as it is where nothing is asked for.
FULL = MeshRequest(512, is_refined=True, clean="pieces", color="vertex", texture_size=2048)


class FakeRunner:
    """Records what the command line asks of a runner."""

    calls: list = []
    step = 0

    def __init__(self, experiment, log):
        self.calls.append(("Runner", experiment.conf))

    def train(self, language=None, *followers):
        self.calls.append(("train", ()))

    def snapshot(self):
        return "snapshot"


PAGE = "models.report.added"
RESULTS = {
    "validate_mesh": "models.results.meshes",
    "validate_image": "models.evaluation.validation",
    "interpolate": "models.results.interpolation",
    "evaluate": "models.evaluation.evaluate",
}


def fake_opening(name):
    """Stands in for models.experiment's functions: records its arguments, finds nothing wrong."""

    def opened(conf, *args):
        FakeRunner.calls.append((name, args[:-1]))
        scene = SimpleNamespace(n_views=10, name="fake", scene_to_world=None)
        doors = {"close": lambda: None, "withdraw": lambda: FakeRunner.calls.append(("withdraw",))}
        return SimpleNamespace(**doors, conf=conf, folder=Path("exp"), scene=scene, checkpoint=None)

    return opened


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """Fakes for the modules that load Jittor, in an empty working folder."""
    for name in ("models.runner", PAGE, *RESULTS.values()):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["models.runner"].Runner = FakeRunner
    for name in ("with_evaluation", "with_mesh", "with_picture"):
        setattr(sys.modules[PAGE], name, lambda *_args: None)
    for name, module in RESULTS.items():
        record = lambda snapshot, *args, name=name: FakeRunner.calls.append((name, args))  # noqa: E731
        setattr(sys.modules[module], name, record)
    monkeypatch.setattr("models.experiment.open_training", fake_opening("open_training"))
    monkeypatch.setattr("models.experiment.open_results", fake_opening("open_results"))
    monkeypatch.setattr("models.evaluation.references.read_references", lambda experiment, asked: "references")
    monkeypatch.setattr("models.surface.export.surface_to_world", lambda surface, scene_to_world: surface)
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
    (["--set", "train.end_iter=5", "train.seed=1"], "each key needs its own --set: --set train.seed=1"),
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
    (["--case", "bear"], "--case bear: the default conf, confs/demo.conf, trains on the bundled scene; give a conf"),
    (["--mode", "validate_mesh", "--case", "bear"], "--conf confs/fast.conf"),
    (["--mode", "inspect", "--case", "bear"], "public_data/bear: no such folder"),
    (["--set", "train.end_iter"], "KEY=VALUE"),
    (["--set", "train.lerning_rate=1"], "did you mean train.learning_rate?"),
    (["--set", "train.end_iter=soon"], "must be a whole number"),
    (["--set", "train.end_iter=1", "--set", "train.warm_up_end=1"], "train.warm_up_end"),
    (["--set"], "--set"),
]
BAD_IDS = [" ".join(row[0])[:40] for row in BAD_COMMAND_LINES]


@pytest.mark.parametrize(("argv", "complaint"), BAD_COMMAND_LINES, ids=BAD_IDS)
def test_a_bad_command_line_is_one_sentence_exit_2_and_no_runner(argv, complaint, runner, tmp_path, capsys):
    assert exp_runner.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and complaint in err
    assert runner.calls == [] and list(tmp_path.iterdir()) == []


@pytest.mark.cli
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
    from models.commands.arguments import EPILOG

    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt_300000.pth").touch()
    examples = [line.split("   ")[0].split() for line in EPILOG.splitlines() if "python exp_runner.py" in line]
    assert len(examples) >= 7
    for words in examples:
        parse_arguments(words[2:])


DISPATCHED = [
    (["--mode", "train"], ("open_training", (False, None, False)), ("train", ())),
    (["--is_continue"], ("open_training", (True, None, False)), ("train", ())),
    (["--overwrite"], ("open_training", (False, None, True)), ("train", ())),
    (["--checkpoint", "c"], ("open_training", (False, Path("c"), False)), ("train", ())),
    (["--mode", "validate_mesh"], ("open_results", (None,)), ("validate_mesh", (FULL,))),
    (
        ["--mode", "validate_mesh", "--resolution", "64", "--mcube_threshold", "-0.5", "--checkpoint", "c"],
        ("open_results", (Path("c"),)),
        ("validate_mesh", (replace(FULL, resolution=64, threshold=-0.5),)),
    ),
    (["--mode", "validate_image", "--image", "3"], ("open_results", (None,)), ("validate_image", (3, 2))),
    (["--mode", "validate_image", "--resolution_level", "1"], ("open_results", (None,)), ("validate_image", (0, 1))),
    (["--mode", "interpolate_2_7"], ("open_results", (None,)), ("interpolate", (2, 7, None))),
    (
        ["--mode", "evaluate"],
        ("open_results", (None,)),
        ("evaluate", (EvaluationRequest(MeshRequest(512, None)), "references")),
    ),
]


@pytest.mark.parametrize(("argv", "opened", "called"), DISPATCHED, ids=[" ".join(row[0]) for row in DISPATCHED])
def test_a_mode_opens_its_experiment_and_becomes_one_call(argv, opened, called, runner, tmp_path):
    (tmp_path / "c").touch()
    assert exp_runner.main([*argv, "--set", "train.validate_resolution_level=2"]) == 0
    assert [runner.calls[0], *runner.calls[2:]] == [opened, called]


@pytest.mark.parametrize(
    "mode", [["interpolate_0_10"], ["interpolate_10_0"], ["validate_image", "--image", "10"]], ids=str
)
def test_a_photograph_the_scene_does_not_have_is_named_before_jittor_is_loaded(mode, runner, capsys):
    assert exp_runner.main(["--mode", *mode]) == 2
    assert "no training photograph 10: the scene fake has 0 to 9" in capsys.readouterr().err
    assert [name for name, _ in runner.calls] == ["open_results"]


def test_device_gpu_and_seed_reach_backend_and_conf(runner, monkeypatch):
    asked = []
    monkeypatch.setattr("models.machine.backend.select", lambda device, gpu: asked.append((device, gpu)))
    assert exp_runner.main(["--device", "cpu", "--gpu", "2", "--set", "train.seed=5", "--seed", "7"]) == 0
    assert asked == [("cpu", 2)] and conf_used(runner).train.seed == 7


def conf_used(runner):
    """The conf the runner was made with."""
    return dict(runner.calls[1:2])["Runner"]


def test_from_elsewhere_the_default_conf_and_its_scene_are_the_programs_own_and_results_stay_here(runner):
    assert exp_runner.main([]) == 0
    conf = conf_used(runner)
    assert Path(conf.dataset.data_dir) == ROOT / "data/demo" and Path(conf.dataset.test_dir) == ROOT / "data/demo/test"
    assert Path(conf.dataset.reference_mesh) == ROOT / "data/demo/ground_truth.ply"
    assert conf.general.base_exp_dir == "./exp/demo"


@pytest.mark.slow
def test_an_empty_surface_exits_2_an_interrupt_130_a_missing_package_2(runner, monkeypatch, capsys):
    from models.surface.extraction import EmptySurfaceError

    def raising(error):
        def evaluate(*_args):
            raise error

        monkeypatch.setattr(sys.modules[RESULTS["evaluate"]], "evaluate", evaluate)
        return exp_runner.main(["--mode", "evaluate"])

    assert raising(EmptySurfaceError("nothing there")) == 2
    assert raising(KeyboardInterrupt()) == 130
    assert raising(UserError("no checkpoint")) == 2
    assert raising(ModuleNotFoundError("No module named 'tqdm'", name="tqdm")) == 2
    assert "nothing there" in (err := capsys.readouterr().err) and "pip install -r requirements.txt" in err


def test_a_fault_of_the_program_is_not_hidden(runner, monkeypatch):
    def evaluate(*_args):
        raise ModuleNotFoundError("No module named 'models.nowhere'", name="models.nowhere")

    monkeypatch.setattr(sys.modules[RESULTS["evaluate"]], "evaluate", evaluate)
    with pytest.raises(ModuleNotFoundError):
        exp_runner.main(["--mode", "evaluate"])

"""The command line: what is refused, with which exit status, and what reaches the runner."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import exp_runner
from data.errors import UserError
from models.commands.arguments import EPILOG, parse_arguments
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

        def record(snapshot, *args, name=name):
            FakeRunner.calls.append((name, args))
            return SimpleNamespace(values={})

        setattr(sys.modules[module], name, record)
    monkeypatch.setattr("models.experiment.open_training", fake_opening("open_training"))
    monkeypatch.setattr("models.experiment.open_results", fake_opening("open_results"))
    monkeypatch.setattr("models.evaluation.references.read_references", lambda experiment, asked: "references")
    monkeypatch.setattr("models.surface.export.surface_to_world", lambda surface, scene_to_world: surface)
    monkeypatch.setattr(FakeRunner, "calls", [])
    monkeypatch.chdir(tmp_path)
    return FakeRunner


BAD_COMMAND_LINES = {
    "did you mean train?": ["--mode trian", "--mode Train"],
    "did you mean validate_": ["--mode validate"],
    "unknown mode": ["--mode "],
    "interpolate_I_J": ["--mode interpolate", "--mode interpolat_0_1"],
    "interpolate_0_5": [f"--mode interpolate_{numbers}" for numbers in ("0", "0_x", "-1_2", "0_1_2", "\u0663_1")],
    "did you mean --resolution?": ["--resoluton 64"],
    "each key needs its own --set: --set train.seed=1": ["--set train.end_iter=5 train.seed=1"],
    "did you mean --image?": ["--imag 3"],
    "2..2048": [f"--resolution {number}" for number in ("1", "2049", "64.5", "9" * 5000)],
    "finite": [f"--mcube_threshold {number}" for number in ("nan", "inf", "a")],
    "nowhere.pth": ["--checkpoint nowhere.pth"],
    "no such file": ["--checkpoint ."],
    "only one of them": ["--overwrite --is_continue"],
    "nowhere.conf": ["--conf nowhere.conf"],
    "cannot be read": ["--conf ."],
    "--case bear: the default conf, confs/demo.conf, trains on the bundled scene; give a conf": ["--case bear"],
    "--conf confs/fast.conf": ["--mode validate_mesh --case bear"],
    "public_data/bear: no such folder": ["--mode inspect --case bear"],
    "KEY=VALUE": ["--set train.end_iter"],
    "did you mean train.learning_rate?": ["--set train.lerning_rate=1"],
    "train.warm_up_end": ["--set train.end_iter=1 --set train.warm_up_end=1"],
}
NAMED = ("--image -1", "--resolution_level 0", "--gpu -1", "--device gpu", "--seed -1", "--seed 2147483648")
NAMED += ("--case ../x", "--mode", "--set", "stray")
BAD_COMMAND_LINES = [(line, words) for words, lines in BAD_COMMAND_LINES.items() for line in lines]
BAD_COMMAND_LINES += [(line, line.split()[0]) for line in NAMED]


@pytest.mark.parametrize(("line", "words"), BAD_COMMAND_LINES, ids=[row[0][:40] for row in BAD_COMMAND_LINES])
def test_a_bad_command_line_is_one_sentence_exit_2_and_no_runner(line, words, runner, tmp_path, capsys):
    assert exp_runner.main(line.split(" ")) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert runner.calls == [] and list(tmp_path.iterdir()) == []


@pytest.mark.cli
def test_a_mistake_exits_2_without_a_traceback_before_jittor_is_loaded(tmp_path):
    command = [sys.executable, "-X", "importtime", ROOT / "exp_runner.py", "--set", "x=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 2 and len(sentences) == 1 and sentences[0].startswith("error: ")
    assert done.stdout == "" and list(tmp_path.iterdir()) == [] and "jittor" not in done.stderr


def test_help_names_every_flag_and_mode_and_its_examples_parse(capsys, tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        exp_runner.main(["--help"])
    page = capsys.readouterr().out
    flags = (
        "conf mode case is_continue checkpoint mcube_threshold resolution gpu device set seed image resolution_level"
    )
    assert stopped.value.code == 0 and all(f"--{flag} " in page for flag in flags.split())
    assert all(mode in page for mode in ("train", "validate_mesh", "validate_image", "interpolate_I_J", "evaluate"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt_300000.pth").touch()
    examples = [line.split("   ")[0].split() for line in EPILOG.splitlines() if "python exp_runner.py" in line]
    assert len(examples) >= 7 and all(parse_arguments(words[2:]) for words in examples)


TRAINED, SHOWN = ("train", ()), ("open_results", (None,))
MESH = "--mode validate_mesh --resolution 64 --mcube_threshold -0.5 --checkpoint c"
DISPATCHED = [
    ("--mode train", ("open_training", (False, None, False)), TRAINED),
    ("--is_continue", ("open_training", (True, None, False)), TRAINED),
    ("--overwrite", ("open_training", (False, None, True)), TRAINED),
    ("--checkpoint c", ("open_training", (False, Path("c"), False)), TRAINED),
    ("--mode validate_mesh", SHOWN, ("validate_mesh", (FULL,))),
    (MESH, ("open_results", (Path("c"),)), ("validate_mesh", (replace(FULL, resolution=64, threshold=-0.5),))),
    ("--mode validate_image --image 3", SHOWN, ("validate_image", (3, 2))),
    ("--mode validate_image --resolution_level 1", SHOWN, ("validate_image", (0, 1))),
    ("--mode interpolate_2_7", SHOWN, ("interpolate", (2, 7, None))),
    ("--mode evaluate", SHOWN, ("evaluate", (EvaluationRequest(MeshRequest(512, None)), "references"))),
]


@pytest.mark.parametrize(("line", "opened", "called"), DISPATCHED, ids=[row[0] for row in DISPATCHED])
def test_a_mode_opens_its_experiment_and_becomes_one_call(line, opened, called, runner, tmp_path):
    (tmp_path / "c").touch()
    assert exp_runner.main([*line.split(), "--set", "train.validate_resolution_level=2"]) == 0
    assert [runner.calls[0], *runner.calls[2:]] == [opened, called]


@pytest.mark.parametrize("mode", ["interpolate_0_10", "interpolate_10_0", "validate_image --image 10"])
def test_a_photograph_that_is_not_there_is_named_before_jittor_is_loaded(mode, runner, capsys):
    assert exp_runner.main(["--mode", *mode.split()]) == 2
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


def test_from_elsewhere_the_scene_is_the_programs_own_and_results_stay(runner):
    assert exp_runner.main([]) == 0
    conf = conf_used(runner)
    assert Path(conf.dataset.data_dir) == ROOT / "data/demo" and Path(conf.dataset.test_dir) == ROOT / "data/demo/test"
    assert Path(conf.dataset.reference_mesh) == ROOT / "data/demo/ground_truth.ply"
    assert conf.general.base_exp_dir == "./exp/demo"


@pytest.mark.slow
def test_what_ends_a_command_decides_its_status_and_a_fault_is_not_hidden(runner, monkeypatch, capsys):
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
    with pytest.raises(ModuleNotFoundError):
        raising(ModuleNotFoundError("No module named 'models.nowhere'", name="models.nowhere"))


def test_an_interruption_is_no_error_and_says_how_to_go_on(monkeypatch, capsys):
    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(exp_runner, "phase", stopped)
    for flags, words in (([], ""), (["--overwrite"], " without --overwrite")):
        assert exp_runner.main(["--mode", "reconstruct", "--images", "photos", *flags]) == 130
        assert capsys.readouterr().err == f"interrupted: repeat the command to continue{words}\n"

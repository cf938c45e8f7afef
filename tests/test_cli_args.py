"""The command line: what is refused, with which exit status, and what opens an experiment."""

import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import exp_runner
from data.errors import UserError
from models.commands.arguments import EPILOG, parse_arguments
from models.commands.flags import COMMON
from models.commands.modes import COMMANDS, MODE_NAMES

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Stands in for the functions that open an experiment, in an empty working folder."""
    opening = Mock()
    for name in ("open_training", "open_results"):
        monkeypatch.setattr(f"models.results.experiment.{name}", getattr(opening, name))
        getattr(opening, name).side_effect = UserError("no more")
    monkeypatch.chdir(tmp_path)
    return opening


BAD_COMMAND_LINES = {
    "did you mean validate_": ["--mode validate"],
    "unknown mode": ["--mode "],
    "interpolate_I_J": ["--mode interpolate"],
    "interpolate_0_5": [f"--mode interpolate_{numbers}" for numbers in ("0", "0_x", "-1_2", "0_1_2", "\u0663_1")],
    "each key needs its own --set: --set train.seed=1": ["--set train.end_iter=5 train.seed=1"],
    "2..2048": [f"--resolution {number}" for number in ("2049", "64.5", "9" * 5000)],
    "finite": ["--mcube_threshold nan"],
    "--case bear: the default conf, confs/demo.conf, trains on the bundled scene; give a conf": ["--case bear"],
    "--conf confs/fast.conf": ["--mode validate_mesh --case bear"],
    "public_data/bear: no such folder": ["--mode inspect --case bear"],
    "contradict each other; give only one": [
        *("--mode validate_mesh --no-clean --clean views", "--mode=train --mode plan", "train --mode plan"),
        *("--output a.ply --output=b.ply", "--seed 1 --seed 2", "--bbox 0 0 0 1 1 1 --bbox 0 0 0 1 1 2"),
    ],
    "train.warm_up_end": ["--set train.end_iter=1 --set train.warm_up_end=1"],
}
NAMED = ("--image -1", "--resolution_level 0", "--gpu -1", "--seed 2147483648", "--mode", "--set", "stray")
BAD_COMMAND_LINES = [(line, words) for words, lines in BAD_COMMAND_LINES.items() for line in lines]
BAD_COMMAND_LINES += [(line, line.split()[0]) for line in NAMED]


@pytest.mark.parametrize(("line", "words"), BAD_COMMAND_LINES, ids=[row[0][:40] for row in BAD_COMMAND_LINES])
def test_a_bad_command_line_is_one_sentence_exit_2_and_no_runner(line, words, opened, tmp_path, capsys):
    assert exp_runner.main(line.split(" ")) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert opened.mock_calls == [] and list(tmp_path.iterdir()) == []


def test_a_flag_may_be_repeated_with_its_value():
    words = ["plan", "--gpu=1", "--gpu", "1", "--seed", "3", "--seed=3"]
    words += ["--set", "train.end_iter=9", "--set", "train.val_freq=1"]
    assert parse_arguments(words).overrides == ("train.end_iter=9", "train.val_freq=1", "train.seed=3")


@pytest.mark.cli
def test_a_mistake_exits_2_without_a_traceback_before_jittor_is_loaded(tmp_path):
    command = [sys.executable, "-X", "importtime", ROOT / "exp_runner.py", "--set", "x=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 2 and len(sentences) == 1 and sentences[0].startswith("error: ")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.stdout == "" and list(tmp_path.iterdir()) == [] and not imported & {"jittor", "jittor_utils"}


def test_the_examples_of_the_help_parse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt_300000.pth").touch()
    examples = [line.split("   ")[0].split() for line in EPILOG.splitlines() if "python exp_runner.py" in line]
    assert len(examples) >= 7 and all(parse_arguments(words[2:]) for words in examples)


def test_flags_reach_what_is_opened_and_the_backend(opened, monkeypatch, tmp_path):
    """From another folder the scene is the program's own, and results stay in that folder."""
    asked = Mock()
    monkeypatch.setattr("models.machine.jittor_import.select", asked)
    (tmp_path / "c").touch()
    for flags, expected in (
        ("--is_continue", (True, None, False)),
        ("--overwrite", (False, None, True)),
        ("--checkpoint c --device cpu --gpu 2 --set train.seed=5 --seed 7", (False, Path("c"), False)),
    ):
        assert exp_runner.main(flags.split()) == 2
        conf, *found = opened.open_training.call_args.args[:4]
        assert tuple(found) == expected
    assert asked.call_args.args == ("cpu", 2) and conf.train.seed == 7
    assert Path(conf.dataset.data_dir) == ROOT / "data/demo" and conf.general.base_exp_dir == "./exp/demo"
    assert exp_runner.main(["--mode", "evaluate", "--checkpoint", "c"]) == 2
    assert opened.open_results.call_args.args[1] == Path("c")


def test_what_ends_a_command_decides_its_status_and_a_fault_is_not_hidden(opened, capsys):
    opened.open_results.side_effect = [
        KeyboardInterrupt(),
        ModuleNotFoundError("No module named 'tqdm'", name="tqdm"),
        ModuleNotFoundError("No module named 'models.nowhere'", name="models.nowhere"),
    ]
    assert [exp_runner.main(["--mode", "evaluate"]) for _ in range(2)] == [130, 2]
    assert "pip install -r requirements.txt" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        exp_runner.main(["--mode", "evaluate"])


def test_an_interruption_is_no_error_and_says_how_to_go_on(monkeypatch, capsys):
    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(exp_runner, "phase", stopped)
    for words, advice in (
        ("--mode reconstruct --images photos", "repeat the command to continue"),
        ("--mode reconstruct --images photos --overwrite", "repeat the command to continue without --overwrite"),
        ("--mode evaluate", "repeat the command"),
        ("--mode train --overwrite", "repeat the command"),  # before its first step
    ):
        assert exp_runner.main(words.split()) == 130 and capsys.readouterr().err == f"stopped: {advice}\n"


@pytest.mark.parametrize("name", [name.replace("I_J", "0_5") for name in MODE_NAMES])
def test_a_mode_may_be_the_first_word(name, capsys):
    words = ["--conf", "confs/debug.conf", "--images", "data/demo", "--case", "a", "--set", "train.seed=2"]
    words = (
        [] if name in ("compare", "view") else words if name in ("prepare", "reconstruct") else words[:2] + words[4:]
    )
    words += ["exp/a", "exp/b"] if name == "compare" else []
    assert parse_arguments([name, *words]) == parse_arguments(["--mode", name, *words])
    pages = []
    for asked in ([name, "--help"], ["--mode", name, "--help"]):
        with pytest.raises(SystemExit, match="0"):
            parse_arguments(asked)
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
    own = {entry.name for command in COMMANDS if command.mode(name) for entry in (*COMMON, *command.flags)}
    assert set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", pages[0], re.MULTILINE)) == own | {"--help"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "train --resolution 9",
            "--resolution: is a flag of --mode validate_mesh, render, evaluate and reconstruct",
        ),
        ("inspect --is_continue", "--is_continue: is a flag of --mode train, not of inspect"),
        ("--mode train --details", "--details: is a flag of --mode validate_mesh and reconstruct, not of train"),
        ("--mode evaluate --minutes=3", "--minutes: is a flag of --mode reconstruct, not of evaluate; for other modes"),
        ("--mode plan --images data", "--images: is a flag of --mode prepare and reconstruct, not of plan"),
        ("--mode compare --view", "--view: is a flag of --mode train, view and inspect, not of compare; --mode view"),
    ],
)
def test_a_subcommand_takes_its_own_flags_and_mode_most_of_others(words, told):
    with pytest.raises(UserError, match=re.escape(told)):
        parse_arguments(words.split())
    assert parse_arguments(["--mode", "train", "--resolution", "9"]).values.resolution == 9


def test_photographs_follow_the_first_word_without_their_flag():
    for name in ("prepare", "reconstruct"):
        found = parse_arguments([name, "data/demo", "--case", "a"])
        assert found.values.images == Path("data/demo") and found.command.name == name

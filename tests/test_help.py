"""The pages of --help, and what a message says where another program's name, spelling or place is given."""

import re
import tomllib
from pathlib import Path

import pytest

import exp_runner
from models.commands.arguments import make_parser, parse_arguments, parse_mode
from models.commands.conf import read_conf
from models.commands.table import BY_NAME
from models.config.keys import FLAGS, KEYS, MODES, plain
from models.config.program import PROGRAM_FOLDER
from models.methods.conf import known_leaves

ALL_FLAGS = set(make_parser()._option_string_actions)


MEANT = {
    "--data photos": "--set dataset.data_dir=photos?",
    "--max_steps 500": "--set train.end_iter=500?",
    "--iters": "--set train.end_iter=VALUE?",
    "--pipeline.datamanager.train-num-rays-per-batch 512": "--set train.batch_size=512?",
    "--resume": "--is_continue?",
    "fit": "--mode train?",
    "--mode eval": "evaluate?",
    "--set max_steps=3": "train.end_iter?",
    "--conf x.conf": "train.end_iter?",
    "--mode trian --help": "train?",
}


@pytest.mark.parametrize("line", MEANT)
def test_another_programs_name_leads_to_the_flag_or_key_that_is_meant(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x.conf").write_text(f'include "{PROGRAM_FOLDER}/confs/demo.conf"\ntrain.max_steps = 5\n')
    assert exp_runner.main(line.split()) == 2
    assert f"did you mean {MEANT[line]}" in capsys.readouterr().err


def test_what_is_meant_exists_and_each_name_means_one_thing():
    keys = known_leaves()
    assert set(KEYS) <= set(keys) and set(MODES) <= set(BY_NAME)
    for flag in FLAGS:
        words = flag.split()
        assert {word for word in words if word.startswith("--")} <= ALL_FLAGS
        assert words[0] != "--mode" or parse_mode(words[1])
    names = [name for table in (KEYS, FLAGS) for line in table.values() for name in line.split()]
    assert len(names) == len(set(names)) and names == [plain(name) for name in names]


def test_flags_are_read_with_dashes_and_in_both_spellings_of_colour():
    mesh = ["--mode", "validate_mesh"]
    for flags in (["--color", "none", "--texture-size", "64"], ["--colour=none", "--texture_size", "64"]):
        values = parse_arguments([*mesh, *flags]).values
        assert values.colour == "none" and values.texture_size == 64


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_conf_is_found_by_its_name_here_and_in_the_programs_folder(elsewhere):
    def found(name):
        return parse_arguments(["--conf", name, "--case", "bear"]).conf

    assert found("wmask.conf") == found("confs/wmask.conf") == PROGRAM_FOLDER / "confs/wmask.conf"
    (elsewhere / "confs").mkdir()
    (elsewhere / "confs/wmask.conf").touch()
    assert found("wmask.conf") == found("confs/wmask.conf") == Path("confs/wmask.conf")
    (elsewhere / "wmask.conf").touch()
    assert found("wmask.conf") == Path("wmask.conf")
    assert Path(read_conf(parse_arguments(["--conf", "debug.conf"])).dataset.data_dir) == PROGRAM_FOLDER / "data/demo"


def test_a_missing_folder_names_its_neighbours(elsewhere, capsys):
    def told(*argv):
        assert exp_runner.main([*argv]) == 2
        return capsys.readouterr().err

    for name in ("bear", "dtu_scan24"):
        (elsewhere / "public_data" / name).mkdir(parents=True)
    fast = ("--mode", "inspect", "--conf", "fast.conf", "--case")
    assert "did you mean public_data/bear? (there: bear, dtu_scan24)" in told(*fast, "beer")
    assert "no such folder; there: bear, dtu_scan24; dataset.data_dir" in told(*fast, "quux")
    assert "confs/wmask.conf? (there: " in told("--conf", "wmsk.conf")
    assert "did you mean public_data?" in told("--mode", "prepare", "--images", "public-data", "--case", "x")


def test_help_first_points_to_that_of_a_mode_and_version_names_the_commit(capsys):
    with pytest.raises(SystemExit):
        exp_runner.main(["--help"])
    words = "usage: exp_runner.py --mode MODE --help\n\n--mode MODE --help explains one mode"
    assert capsys.readouterr().out.startswith(words)
    with pytest.raises(SystemExit) as left:
        exp_runner.main(["--version"])
    number = tomllib.loads((PROGRAM_FOLDER / "pyproject.toml").read_text())["project"]["version"]
    assert left.value.code == 0
    assert re.fullmatch(rf"neus-jittor {number}(, commit [0-9a-f]{{10}}(, changed)?)?\n", capsys.readouterr().out)

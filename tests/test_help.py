"""The pages of --help, and what a message says where another spelling or place is given."""

import re
import tomllib
from pathlib import Path

import pytest

import exp_runner
from models.commands.arguments import make_parser, parse_arguments
from models.commands.model_modes import read_conf
from models.config.program import PROGRAM_FOLDER

ALL_FLAGS = set(make_parser()._option_string_actions)


MEANT = {
    "--end-iter 500": "--set train.end_iter=500?",
    "tran": "train?",
    "--mode evalute": "evaluate?",
    "--set end_iter=3": "train.end_iter?",
    "--mode trian --help": "train?",
}


@pytest.mark.parametrize("line", MEANT)
def test_an_incomplete_or_misspelt_name_leads_to_the_flag_or_key_that_is_meant(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert exp_runner.main(line.split()) == 2
    assert f"did you mean {MEANT[line]}" in capsys.readouterr().err


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

"""The benchmark of a step: its command line and its profile; the times are not tested."""

import subprocess
import sys

import pytest
from trainings import trainer_of

from benchmarks import bm_step, shapes
from benchmarks.profile_step import FIELDS, OPTIMISER, SAMPLING, profile
from models.methods.conf import load_config


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "--steps 0"),
        (["--threads", "0"], "--threads 0"),
        (["--warm-up", "-1"], "--warm-up -1"),
        (["--peer", "x"], "--peer-python"),
        (["--peer-python", "x"], "--peer FOLDER"),
        (["--peer", "/nowhere", "--peer-python", "x"], "no models/renderer.py"),
        (["--set", "train.no_such_key=1"], "no_such_key"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(arguments, words, capsys):
    assert bm_step.main(arguments) == 2
    shown = capsys.readouterr()
    assert words in shown.err and "Traceback" not in shown.err and shown.out == ""


@pytest.mark.cli
def test_the_program_runs_as_a_file():
    command = [sys.executable, str(shapes.ROOT / "benchmarks" / "bm_step.py"), "--help"]
    shown = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    assert "--peer-python" in shown


@pytest.mark.slow
def test_the_profile_of_a_step_sorts_its_operations_by_phase():
    conf = load_config(shapes.ROOT / "confs/debug.conf", overrides=(f"dataset.data_dir={shapes.ROOT}/data/demo",))
    trainer = trainer_of(conf, steps=1)
    seconds, phases = profile(trainer)
    assert seconds > 0 and list(phases) == [SAMPLING, FIELDS, OPTIMISER]
    assert "native sdf_distance" in phases[SAMPLING] and "native sdf_backward" in phases[FIELDS]
    assert "native adam" in phases[OPTIMISER] and all(min(kinds.values()) >= 0 for kinds in phases.values())

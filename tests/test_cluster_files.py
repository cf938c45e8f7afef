"""The files for Slurm run with `sh` where there is none, and ask for what the program has."""

import os
import subprocess

import pytest
from pages import ROOT

from models.commands.arguments import parse_arguments
from models.commands.cases import ARRAY, of_this_job

pytestmark = pytest.mark.cli

SHOW = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n'


@pytest.fixture
def programs(tmp_path):
    """A folder with a python and an mpirun that print what they are asked for, ahead of all others."""
    for name in ("python", "mpirun", "srun"):
        (tmp_path / name).write_text(SHOW.replace("for", f"echo {name}; for", 1))
        (tmp_path / name).chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def words(name, environment):
    """What a file for sbatch starts."""
    done = subprocess.run(["sh", f"docs/slurm/{name}"], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("more", "launch"),
    [({}, ["mpirun", "-n", "2"]), ({"SLURM_JOB_ID": "7"}, ["srun", "--mpi=pmix", "--kill-on-bad-exit=1"])],
)
def test_one_scene(programs, more, launch):
    found = words("train.sbatch", programs | {"CASE": "bear"} | more)
    assert found[:5] == [*launch, *["python", "exp_runner.py"][: 5 - len(launch)]]
    values = parse_arguments(found[found.index("exp_runner.py") + 1 :])
    assert values.case == "bear" and values.values.is_continue and (ROOT / values.conf).is_file()


def test_many_scenes(programs):
    found = words("cases.sbatch", programs | {"CASES": "bear,dog"})
    assert found[:2] == ["python", "exp_runner.py"]
    assert parse_arguments(found[2:]).values.cases == "bear,dog"


def test_a_job_that_is_started_again_takes_what_it_had(tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "python").chmod(0o755)
    alone = dict.fromkeys(ARRAY[:3], "3") | {ARRAY[3]: "1", "CASES": "scenes.txt", "JOBS": "5"}
    found = dict(
        line.split("=", 1) for line in words("cases.sbatch", alone | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    )
    assert of_this_job("ABCDEFGHIJ", found) == ["D", "I"]


def test_a_file_without_its_scene_says_which_variable_is_missing(programs):
    done = subprocess.run(["sh", "docs/slurm/train.sbatch"], env=programs, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and "CASE" in done.stderr

"""The files for Slurm run with `sh` where there is none, and ask for what the program has."""

import os
import subprocess

import pytest
from pages import ROOT

from models.commands.arguments import parse_arguments
from models.machine.ranks import ARRAY, scenes_of_job

pytestmark = pytest.mark.cli

SHOW = '#!/bin/sh\nprintf "%s\\n" "$0" "$@" --\nenv\n'


def words(folder, name, environment):
    """What a file for sbatch starts: a python, mpirun or srun in the folder prints what it is asked for."""
    for program in ("python", "mpirun", "srun"):
        (folder / program).write_text(SHOW)
        (folder / program).chmod(0o755)
    environment = environment | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", f"docs/slurm/{name}"], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_one_scene(tmp_path):
    found = words(tmp_path, "train.sbatch", {"CASE": "bear", "SLURM_JOB_ID": "7"})
    at = found.index("exp_runner.py")
    assert [os.path.basename(found[0]), *found[1:at]] == ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "python"]
    values = parse_arguments(found[at + 1 : found.index("--")])
    assert values.case == "bear" and values.values.is_continue and (ROOT / values.conf).is_file()


def test_a_job_that_is_started_again_takes_what_it_had(tmp_path):
    alone = dict.fromkeys(ARRAY[:3], "3") | {ARRAY[3]: "1", "CASES": "scenes.txt", "JOBS": "5"}
    found = words(tmp_path, "cases.sbatch", alone)
    at = found.index("--")
    assert parse_arguments(found[2:at]).values.cases == "scenes.txt"
    assert scenes_of_job("ABCDEFGHIJ", dict(line.split("=", 1) for line in found[at + 1 :])) == ["D", "I"]

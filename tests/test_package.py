"""What `pip install .` and the Dockerfile take from the clone; neither is built here, which would need the network."""

import shutil
import subprocess
import sys
import tomllib

import pytest
from runs import ROOT

from models.commands.installed.__main__ import RUNNER

COMMAND = ROOT / "models/commands/installed"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_package_holds_the_program_with_all_that_it_reads():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    placed = {**wheel["sources"], **wheel["force-include"]}
    # below one folder, laid out as here: the program finds confs, scene and sources from its own place
    assert all((ROOT / name).exists() for name in placed)
    command = {path.relative_to(ROOT).as_posix(): f"neus/{path.name}" for path in COMMAND.glob("*.py")}
    assert {name: f"neus/{name}" for name in placed if name not in command} | command == placed
    assert {"exp_runner.py", "data", "models", "confs", "requirements.txt"} <= set(placed)
    assert wheel["exclude"] == [f"/{COMMAND.relative_to(ROOT).as_posix()}"]


@pytest.mark.cli
def test_an_installed_program_calls_itself_by_its_command(tmp_path):
    """In a folder with `neus` as pip lays it out."""
    for name in ("data", "models", "confs"):
        skipped = shutil.ignore_patterns("__pycache__", "*.png", "installed")
        shutil.copytree(ROOT / name, tmp_path / "site" / "neus" / name, ignore=skipped)
    for path in (*COMMAND.glob("*.py"), ROOT / "exp_runner.py"):
        shutil.copy(path, tmp_path / "site" / "neus")

    def neus(*words):
        program = [sys.executable, "-c", "from neus.__main__ import main; main()", *words]
        place = {"PYTHONPATH": str(tmp_path / "site")}
        return subprocess.run(program, cwd=tmp_path, env=place, capture_output=True, text=True)

    assert PROJECT["project"]["scripts"]["neus"] == "neus.__main__:main" and RUNNER == ROOT / "exp_runner.py"
    done = neus("--mode", "trian")
    assert done.returncode == 2 and done.stderr == "error: --mode trian: unknown mode; did you mean train?\n"
    shown = neus("--help").stdout
    assert shown.startswith("usage: neus ") and "exp_runner" not in shown and "\n  neus --mode validate_mesh " in shown

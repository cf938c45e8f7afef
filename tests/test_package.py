"""What `pip install .` and the Dockerfile take from the clone; neither is built here, which would need the network."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from runs import ROOT

from models.installed.__main__ import PROGRAM

COMMAND = ROOT / "models" / "installed"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_package_holds_the_program_with_all_that_it_reads():
    hatch = PROJECT["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    placed = {**wheel["sources"], **wheel["force-include"]}
    # below one folder, laid out as here: the program finds confs, scene and sources from its own place
    assert all((ROOT / name).exists() for name in placed)
    command = {path.relative_to(ROOT).as_posix(): f"neus/{path.name}" for path in COMMAND.glob("*.py")}
    assert {name: f"neus/{name}" for name in placed if name not in command} | command == placed
    assert {"exp_runner.py", "data", "models", "confs", "requirements.txt"} <= set(placed)
    assert wheel["exclude"] == [f"/{COMMAND.relative_to(ROOT).as_posix()}"]
    assert set(wheel["only-include"]) == set(wheel["sources"])
    requirements = hatch["metadata"]["hooks"]["requirements_txt"]
    files = [
        *requirements["files"],
        *(name for names in requirements["optional-dependencies"].values() for name in names),
    ]
    assert all((ROOT / name).is_file() for name in files) and requirements["files"] == ["requirements.txt"]


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory):
    """A folder with `neus` as pip lays it out."""
    folder = tmp_path_factory.mktemp("site-packages")
    for name in ("data", "models", "confs"):
        skipped = shutil.ignore_patterns("__pycache__", "*.png", "installed")
        shutil.copytree(ROOT / name, folder / "neus" / name, ignore=skipped)
    for path in (*COMMAND.glob("*.py"), ROOT / "exp_runner.py"):
        shutil.copy(path, folder / "neus")
    return folder


def neus(site_packages, cwd, *words):
    return subprocess.run(
        [sys.executable, "-c", "from neus.__main__ import main; main()", *words],
        cwd=cwd,
        env={"PYTHONPATH": str(site_packages)},
        capture_output=True,
        text=True,
    )


@pytest.mark.cli
def test_the_command_takes_the_flags_of_the_program(site_packages, tmp_path):
    assert PROJECT["project"]["scripts"]["neus"] == "neus.__main__:main" and PROGRAM == ROOT / "exp_runner.py"
    done = neus(site_packages, tmp_path, "--mode", "trian")
    assert done.returncode == 2 and done.stderr == "error: --mode trian: unknown mode; did you mean train?\n"


@pytest.mark.cli
def test_an_installed_program_calls_itself_by_its_command(site_packages, tmp_path):
    shown = neus(site_packages, tmp_path, "--help").stdout
    assert shown.startswith("usage: neus ") and "exp_runner" not in shown
    assert "\n  neus --mode validate_mesh " in shown
    assert "\n  neus --set " in neus(site_packages, tmp_path, "--mode", "train", "--help").stdout


def test_the_containers_are_made_from_the_same_requirements():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"requirements[\w-]*\.txt", text)) == {"requirements.txt", "requirements-cuda.txt"}
    assert "ARG DEVICE=cpu" in text and 'ENTRYPOINT ["neus"]' in text
    build = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert f" AS {build['target']}\n" in text


def test_no_metric_needs_weights_that_are_not_there_and_the_page_says_so():
    from models.evaluation.evaluate import Evaluation

    parts = dict.fromkeys(("pictures", "surface", "points", "dtu", "cameras"))
    assert not [name for name in Evaluation(**parts, views=()).values() if "lpips" in name]
    assert "LPIPS is not offered" in (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")

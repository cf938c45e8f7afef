"""What `pip install .` and the Dockerfile take from the clone; neither is built here, which would need the network."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
from runs import ROOT

from neus.__main__ import PROGRAM

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_package_holds_the_program_with_all_that_it_reads():
    hatch = PROJECT["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]
    placed = {**wheel["sources"], **wheel["force-include"]}
    # below one folder, laid out as here: the program finds confs, scene and sources from its own place
    assert all((ROOT / name).exists() for name in placed)
    assert {name: f"neus/{name}" for name in placed if name != "neus"} | {"neus": "neus"} == placed
    assert {"exp_runner.py", "data", "models", "confs", "requirements.txt"} <= set(placed)
    assert set(wheel["only-include"]) == set(wheel["sources"])
    requirements = hatch["metadata"]["hooks"]["requirements_txt"]
    files = [
        *requirements["files"],
        *(name for names in requirements["optional-dependencies"].values() for name in names),
    ]
    assert all((ROOT / name).is_file() for name in files) and requirements["files"] == ["requirements.txt"]


@pytest.mark.cli
def test_the_command_takes_the_flags_of_the_program(tmp_path):
    assert PROJECT["project"]["scripts"]["neus"] == "neus.__main__:main" and PROGRAM == ROOT / "exp_runner.py"
    done = subprocess.run(
        [sys.executable, "-c", "from neus.__main__ import main; main()", "--mode", "trian"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr == "error: --mode trian: unknown mode; did you mean train?\n"


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
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("figures.md", "figures.zh-CN.md")]
    assert "LPIPS is not offered" in pages[0] and "不提供 LPIPS" in pages[1]

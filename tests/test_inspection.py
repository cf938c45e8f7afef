"""--mode inspect looks at a scene without Jittor, writes its three files, and says what it found."""

import dataclasses
import json
import subprocess
import sys

import pytest
from runs import ROOT
from synthetic_scene import write_scene

from data.errors import UserError
from data.io.images import read_image
from models.commands import inspection
from models.methods.conf import load_config
from models.monitoring.lock import FolderLock


def inspect(folder, out, *extra):
    """The command line on a scene folder, with what Jittor's import would leave behind asked for."""
    code = (
        "import sys, exp_runner\n"
        "status = exp_runner.main(sys.argv[1:])\n"
        "assert 'jittor' not in sys.modules and 'jittor_utils' not in sys.modules\n"
        "sys.exit(status)"
    )
    sets = [f"dataset.data_dir={folder}", f"general.base_exp_dir={out}", *extra]
    arguments = ["--mode", "inspect", *(word for text in sets for word in ("--set", text))]
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.cli
def test_inspect_writes_picture_page_and_figures_and_prints_the_table(tmp_path):
    write_scene(tmp_path / "scene", n_views=9)
    result = inspect(tmp_path / "scene", tmp_path / "out")
    assert result.returncode == 0 and result.stderr == ""
    folder = tmp_path / "out/inspect"
    assert sorted(path.name for path in folder.iterdir()) == ["health.json", "health.md", "overview.png"]
    assert read_image(folder / "overview.png").shape[1:] == (1600, 3)
    findings, page = json.loads((folder / "health.json").read_text())["findings"], (folder / "health.md").read_text()
    assert (findings[0]["check"], findings[0]["figure"], findings[0]["verdict"]) == ("views", "9", "fair")
    for finding in findings:
        assert finding["check"] in result.stdout and f"| {finding['check']} | {finding['verdict']} |" in page
    assert "region of interest" in result.stdout and "region of interest" in page
    lock = FolderLock(tmp_path / "out")  # again, in the same folder, while it trains
    assert inspect(tmp_path / "scene", tmp_path / "out").returncode == 0
    lock.release()


@pytest.mark.cli
@pytest.mark.parametrize("wrong", ["no scene", "no folder"])
def test_what_cannot_be_inspected_is_one_sentence_and_status_2(tmp_path, wrong):
    write_scene(tmp_path / "scene", n_views=3)
    (tmp_path / "file").write_text("")
    scene = tmp_path / ("nowhere" if wrong == "no scene" else "scene")
    result = inspect(scene, tmp_path / "file" if wrong == "no folder" else tmp_path / "out")
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and result.stderr.startswith("error: ")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_no_folder(tmp_path, monkeypatch):
    def full(*_args):
        raise UserError("no space")

    write_scene(tmp_path / "scene")
    before = sorted(tmp_path.rglob("*"))
    conf = load_config(ROOT / "confs/debug.conf")
    dataset = dataclasses.replace(conf.dataset, data_dir=str(tmp_path / "scene"))
    general = dataclasses.replace(conf.general, base_exp_dir=str(tmp_path / "a" / "b"))
    monkeypatch.setattr(inspection, "write_result", full)  # the picture is written before
    with pytest.raises(UserError, match="no space"):
        list(inspection.inspect(dataclasses.replace(conf, dataset=dataset, general=general)))
    assert sorted(tmp_path.rglob("*")) == before

"""The benchmark of the 15 DTU scans: it trains, scores, goes on where it stopped, and prints theirs beside ours."""

import json
import shutil
from statistics import fmean

import numpy as np
import pytest
import trimesh
from runs import ROOT
from test_dtu import spoil_mask, write_reference

import exp_runner
from benchmarks import dtu_table
from benchmarks.dtu_published import ROWS

SETTINGS = (
    "dataset.test_dir=",
    "dataset.reference_mesh=",
    "dataset.downscale=4",
    "train.end_iter=2",
    "train.warm_up_end=1",
    "train.val_freq=0",
    "train.val_mesh_freq=0",
    "model.sdf_network.d_hidden=128",
    "model.sdf_network.skip_in=[]",
)
MIDDLE = np.array([4.0, -7.0, 1.5])  # of the bundled scene, whose radius is 2.5


@pytest.fixture
def folders(tmp_path):
    """Two scans: the bundled scene under their names, and a made-up reference in its world."""
    for scan in (24, 37):
        shutil.copytree(ROOT / "data/demo", tmp_path / f"scenes/dtu_scan{scan}", ignore=shutil.ignore_patterns("test"))
        folder = write_reference(tmp_path / f"dtu{scan}", scan, plane=(0.0, 0.0, 0.0, 1.0))
        trimesh.PointCloud(MIDDLE + trimesh.creation.icosphere(3, 1.25).vertices).export(
            folder / f"Points/stl/stl{scan:03d}_total.ply"
        )
        spoil_mask(folder, scan, ObsMask=np.ones((9, 9, 9)), BB=np.array([MIDDLE - 4, MIDDLE + 4]))
        shutil.copytree(folder, tmp_path / "dtu", dirs_exist_ok=True)
    return tmp_path


def words(folder, *more):
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    flags = ["--scenes", str(folder / "scenes"), "--dtu", str(folder / "dtu"), "--out", str(folder / "out")]
    flags += ["--conf", str(ROOT / "confs/debug.conf"), "--scans", "24", "37", "--resolution", "32"]
    return [*flags, *settings, *more]


@pytest.mark.slow
def test_scans_are_trained_and_scored_once_and_the_table_has_theirs_beside_ours(folders, capsys):
    runs = []

    def run(arguments):
        runs.append(arguments)
        return 130 if len(runs) == 3 else exp_runner.main(arguments)

    assert dtu_table.main(words(folders), run) == 130  # stopped while the second scan is trained
    assert ["--is_continue" in arguments for arguments in runs] == [True, False, True]
    assert dtu_table.main(words(folders), lambda arguments: runs.append(arguments) or exp_runner.main(arguments)) == 0
    assert len(runs) == 5  # the first scan is left alone
    assert all("dtu_scan37" in str(arguments) for arguments in runs[3:])
    capsys.readouterr()
    assert dtu_table.main(words(folders), lambda arguments: pytest.fail("nothing is left to do")) == 0
    told = capsys.readouterr().out
    chamfer = [json.loads((folders / f"out/scan{n}/report/metrics.json").read_text())["dtu_chamfer"] for n in (24, 37)]
    rows = told.splitlines()
    ours = next(row for row in rows if row.startswith("this program, measured here")).split()
    assert ours[5:7] == [f"{value:.2f}" for value in chamfer] and ours[-1] == f"{fmean(chamfer):.2f}"
    published = next(
        line for line in told.splitlines() if line.startswith("NeuS, released code, published [1]")
    ).split()
    assert published[-1] == f"{fmean(ROWS[0].values[:2]):.2f}" and published[-2] == "0.77"
    assert "were not measured here" in told and all(row.source in told for row in ROWS)
    assert (folders / "out/metrics.csv").read_text().count("\n") == 3


@pytest.mark.parametrize("gone", ["scenes/dtu_scan37", "dtu/ObsMask/Plane37.mat"])
def test_what_is_missing_is_told_before_anything_is_trained(gone, folders, capsys):
    path = folders / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert dtu_table.main(words(folders), lambda arguments: pytest.fail("too early")) == 2
    error = capsys.readouterr().err
    assert "37" in error and error.count("\n") == 1

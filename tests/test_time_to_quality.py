"""benchmarks/bm_time_to_quality.py: its output files; the quality of the model is not tested."""

import csv

import numpy as np
import pytest

from benchmarks import bm_time_to_quality as program
from benchmarks.quality import runs
from benchmarks.quality.rows import COLUMNS
from benchmarks.shapes import ROOT

CONF = ROOT / "confs/debug.conf"
SCENE = [f"dataset.{key}={ROOT}/data/demo{name}" for key, name in (("data_dir", ""), ("test_dir", "/test"))]
SCENE.append(f"dataset.reference_mesh={ROOT}/data/demo/ground_truth.ply")


def command(out, *more, end=4):
    settings = [word for value in (*SCENE, "train.warm_up_end=1", "train.batch_size=8") for word in ("--set", value)]
    run = ["--run", f"tiny={CONF}", f"train.end_iter={end}"]
    measured = ["--at", "0.5", "--resolution", "16", "--level", "16", "--views", "1", "--samples", "1000"]
    return [*run, *settings, *measured, "--points", f"{ROOT}/data/demo/ground_truth.ply", "--out", str(out), *more]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("quality")
    assert program.main(command(out)) == 0
    return out


@pytest.fixture
def no_worker(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("something is done again")

    monkeypatch.setattr(runs, "Worker", refuse)


def read(out):
    with (out / "runs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.cli
def test_a_run_gives_a_row_for_each_moment_and_a_picture(measured):
    rows = read(measured)
    assert tuple(rows[0]) == COLUMNS
    assert [(row["run"], row["step"], row["rays"], row["samples"]) for row in rows] == [
        ("tiny", "2", "16", "256"),
        ("tiny", "4", "32", "512"),
    ]
    seconds = [float(row["seconds"]) for row in rows]
    assert 0 < seconds[0] < seconds[1] and float(rows[1]["cpu_seconds"]) > 0 and float(rows[1]["peak_mb"]) > 50
    for name in ("chamfer", "f_score", "normal_error", "psnr", "psnr_mask", "points_median", "points_p90", "load"):
        assert all(np.isfinite(float(row[name])) for row in rows)
    assert rows[0]["psnr"] != rows[1]["psnr"] and rows[0]["chamfer"] != rows[1]["chamfer"]
    assert (measured / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.cli
def test_a_second_call_repeats_nothing(measured, no_worker, capsys):
    before = (measured / "runs.csv").read_bytes()
    (measured / "curves.png").unlink()
    assert program.main(command(measured)) == 0
    assert (measured / "runs.csv").read_bytes() == before and (measured / "curves.png").is_file()
    assert "| tiny |" in capsys.readouterr().out


def row(run, seconds, chamfer, seed=0, length=1.0):
    return dict.fromkeys(COLUMNS) | {
        "run": run,
        "length": length,
        "seed": seed,
        "seconds": seconds,
        "chamfer": chamfer,
        "cpu_seconds": 2 * seconds,
    }

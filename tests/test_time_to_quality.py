"""benchmarks/bm_time_to_quality.py: its table, and that nothing is done twice; the quality is not tested."""

import json

import pytest

from benchmarks import bm_time_to_quality as program
from benchmarks.report import ROOT

DEMO = ROOT / "data/demo"


@pytest.mark.cli
def test_a_training_gives_a_row_for_each_moment_and_runs_once(tmp_path, capsys):
    values = [f"dataset.data_dir={DEMO}", f"dataset.test_dir={DEMO}/test", "train.batch_size=8", "train.warm_up_end=1"]
    values += ["dataset.downscale=8"]
    run = ["--run", f"tiny={ROOT}/confs/debug.conf", f"dataset.reference_mesh={DEMO}/ground_truth.ply"]
    flags = [*run, "train.end_iter=4", *(word for value in values for word in ("--set", value)), "--at", "0.5"]
    flags += ["--points", f"{DEMO}/ground_truth.ply", "--resolution", "16", "--out", str(tmp_path)]
    assert program.main(flags) == 0
    said = capsys.readouterr().out
    assert "| run | length | step | seeds | seconds |" in said and "| tiny | 1 | 4 | 1 |" in said
    rows = json.loads(said.splitlines()[-1])["rows"]
    assert [row["step"] for row in rows] == [2, 4] and 0 < rows[0]["seconds"] < rows[1]["seconds"]
    assert all(isinstance(row[name], float) for row in rows for name in ("chamfer", "psnr", "points_median", "peak_mb"))
    made = (tmp_path / "tiny_x1_seed0" / program.ROWS).stat().st_mtime_ns
    assert program.main(flags) == 0 and (tmp_path / "tiny_x1_seed0" / program.ROWS).stat().st_mtime_ns == made

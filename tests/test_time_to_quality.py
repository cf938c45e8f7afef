"""benchmarks/bm_time_to_quality.py: what it writes and what it keeps; how good a model is is not a test's business."""

import csv
import time

import numpy as np
import pytest
import trimesh

from benchmarks import bm_time_to_quality as program
from benchmarks.quality import runs, weights
from benchmarks.quality.rows import COLUMNS, read_curve
from benchmarks.quality.surfaces import against_truth, from_points, read_points
from benchmarks.quality.table import equal_time, spread
from benchmarks.quality.train import compiled_since
from benchmarks.shapes import ROOT
from data.errors import UserError
from models.fields.state import export_state
from models.machine.backend import jt
from models.methods.conf import load_config
from models.methods.registry import build_model

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


def test_operations_compiled_within_the_clock_are_counted():
    jt.array(np.ones(3, np.float32)).sync()
    assert compiled_since(0.0) > 0 and compiled_since(time.time() + 60) == 0


@pytest.mark.cli
def test_a_second_call_repeats_nothing(measured, no_worker, capsys):
    before = (measured / "runs.csv").read_bytes()
    (measured / "curves.png").unlink()
    assert program.main(command(measured)) == 0
    assert (measured / "runs.csv").read_bytes() == before and (measured / "curves.png").is_file()
    assert "| tiny |" in capsys.readouterr().out


@pytest.mark.cli
@pytest.mark.parametrize(
    ("more", "end", "words"),
    [
        (["--set", "train.igr_weight=0.7"], 4, "another conf"),
        (["--at", "0.25"], 4, "other shares"),
    ],
)
def test_a_kept_training_is_not_taken_for_another(measured, no_worker, capsys, more, end, words):
    before = (measured / "runs.csv").read_bytes()
    assert program.main(command(measured, *more, end=end)) == 2
    assert words in capsys.readouterr().err and (measured / "runs.csv").read_bytes() == before


@pytest.mark.cli
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--run", "confs/debug.conf"], "NAME=CONF"),
        (["--run", "a/b=confs/debug.conf"], "NAME=CONF"),
        (["--run", f"tiny={CONF}"], "two of this name"),
        (["--run", "other=nowhere.conf"], "nowhere.conf"),
        (["--run", f"other={CONF}", "train.no_such_key=1"], "no_such_key"),
        (["--run", f"other={CONF}", "dataset.data_dir=/nowhere"], "/nowhere"),
        (["--ground-truth", "/nowhere.ply"], "/nowhere.ply"),
        (["--points", "/nowhere.ply"], "/nowhere.ply"),
        (["--curve", "nowhere.csv"], "NAME=FILE"),
        (["--curve", "peer=/nowhere.csv"], "/nowhere.csv"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_nothing_is_done(tmp_path, no_worker, capsys, arguments, words):
    assert program.main(command(tmp_path / "out", *arguments)) == 2
    shown = capsys.readouterr()
    assert words in shown.err and "Traceback" not in shown.err and not (tmp_path / "out").exists()


@pytest.mark.cli
@pytest.mark.parametrize("arguments", [["--at", "1.5"], ["--lengths", "0"], ["--seeds", "x"], ["--level", "0"]])
def test_a_number_out_of_its_range_is_refused(tmp_path, arguments):
    with pytest.raises(SystemExit, match="2"):
        program.main(command(tmp_path / "out", *arguments))


def test_lengths_and_seeds_are_trainings_of_their_own_and_runs_take_turns():
    specs = [runs.parse_spec(["a=" + str(CONF)]), runs.parse_spec(["b=" + str(CONF), "train.end_iter=40"])]
    planned = runs.make_runs(specs, "", ["train.batch_size=8", "train.end_iter=30"], (0.5, 1.0), (3, 4))
    assert [run.folder_name for run in planned[:4]] == ["a_x0.5_seed3", "b_x0.5_seed3", "a_x0.5_seed4", "b_x0.5_seed4"]
    assert [run.conf.train.end_iter for run in planned] == [15, 20, 15, 20, 30, 40, 30, 40]
    assert {run.conf.train.batch_size for run in planned} == {8}
    assert runs.marks(15, (0.1, 0.5)) == [2, 8, 15] and runs.marks(1, (0.1,)) == [1]


def test_the_weights_of_a_file_are_those_that_were_kept(tmp_path):
    conf = load_config(CONF)
    first, second = (build_model(conf.model, conf.train, np.random.default_rng(seed)) for seed in (0, 1))
    weights.save(tmp_path / "weights.npz", first)
    weights.load(tmp_path / "weights.npz", second)
    for name, network in first.networks.items():
        for key, array in export_state(network).items():
            np.testing.assert_array_equal(array, export_state(second.networks[name])[key])


def plate(height, flipped=False):
    corners = [(x, y, height) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))]
    faces = np.array([(0, 1, 2), (0, 2, 3)])
    return trimesh.Trimesh(corners, faces[:, ::-1] if flipped else faces, process=False)


def test_the_figures_of_two_plates_are_what_they_are_by_hand():
    near = against_truth(plate(0.004), plate(0.0), threshold=0.005, samples=1000)
    assert near == pytest.approx({"chamfer": 0.004, "precision": 1, "recall": 1, "f_score": 1, "normal_error": 0})
    far = against_truth(plate(0.006, flipped=True), plate(0.0), threshold=0.005, samples=1000)
    assert far == pytest.approx({"chamfer": 0.006, "precision": 0, "recall": 0, "f_score": 0, "normal_error": 180})
    both = trimesh.util.concatenate([plate(0.0), plate(1.0)])
    extra = against_truth(both, plate(0.0), threshold=0.005, samples=20_000)
    assert extra["precision"] == pytest.approx(0.5, abs=0.02) and extra["recall"] == 1
    assert extra["f_score"] == pytest.approx(2 / 3, abs=0.02) and extra["chamfer"] == pytest.approx(0.25, abs=0.01)


def test_a_triangle_without_area_has_no_angle():
    needle = trimesh.Trimesh([(0.2, 0.2, 0.001), (0.8, 0.8, 0.001), (0.2, 0.2, 0.001)], [(0, 1, 2)], process=False)
    mesh = trimesh.util.concatenate([plate(0.01), needle])
    assert against_truth(mesh, plate(0.0), 0.005, 1000)["normal_error"] == pytest.approx(0, abs=1e-4)


def test_points_are_read_and_their_distances_sorted(tmp_path):
    points = np.array([(0.5, 0.5, height) for height in np.linspace(0, 0.1, 11)])
    trimesh.PointCloud(points).export(tmp_path / "points.ply")
    found = from_points(plate(0.0), read_points(tmp_path / "points.ply"))
    assert found == pytest.approx({"points_median": 0.05, "points_p90": 0.09})
    (tmp_path / "none.ply").write_text("ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nend_header\n")
    with pytest.raises(UserError, match=r"none\.ply: "):
        read_points(tmp_path / "none.ply")


def row(run, seconds, chamfer, seed=0, length=1.0):
    return dict.fromkeys(COLUMNS) | {
        "run": run,
        "length": length,
        "seed": seed,
        "seconds": seconds,
        "chamfer": chamfer,
        "cpu_seconds": 2 * seconds,
    }


def test_at_equal_time_others_are_interpolated_and_one_that_ended_counts_as_it_ended():
    rows = [row("a", 5, 0.5), row("a", 20, 0.2), row("a", 90, 0.1), row("b", 10, 0.1), row("b", 30, 0.05)]
    lines = equal_time([*rows, row("peer", 1, 0.9, None, None)], "a").splitlines()
    assert lines[0] == "| seconds | run | CPU s | Chamfer |"
    assert [line for line in lines if " b" in line] == [
        "| 20.0 | b | 40.0 | 0.07500 |",
        "| 90.0 | b, ended at 30.0 | 60.0 | 0.05000 |",
    ]
    assert len([line for line in lines if "peer, ended at 1.0" in line]) == 3


def test_seeds_are_averaged_and_one_without_a_surface_is_not_hidden():
    rows = [row("a", 10, 0.2, 0), row("a", 12, 0.4, 1), row("b", 10, 0.1, 0), row("b", 10, None, 1)]
    assert "| 11.0 | a, mean of 2 seeds | 22.0 | 0.30000 |" in equal_time(rows, "a")
    assert "| 11.0 | b, mean of 2 seeds, ended at 10.0 | 20.0 | - |" in equal_time(rows, "a")
    table = spread(rows).splitlines()
    assert table[2:] == [
        "| a |  | 2 | 11.0 | 0.30000 | 0.20000 | 0.40000 | 66.7% | 0 |",
        "| b |  | 2 | 10.0 | 0.10000 | 0.10000 | 0.10000 | 0.0% | 1 |",
    ]
    assert spread(rows[:1]) == ""


def test_a_curve_from_elsewhere_needs_seconds_and_a_figure(tmp_path):
    path = tmp_path / "peer.csv"
    path.write_text("seconds,psnr,whatever\n10,20.5,x\n20,,y\n", encoding="utf-8")
    rows = read_curve("peer", path)
    assert [(each["run"], each["seconds"], each["psnr"], each["length"]) for each in rows] == [
        ("peer", 10, 20.5, None),
        ("peer", 20, None, None),
    ]
    for text in ("psnr\n20\n", "seconds\n1\n", "seconds,psnr\n", "seconds,psnr\n,3\n", "seconds,psnr\n1,many\n"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="peer.csv"):
            read_curve("peer", path)

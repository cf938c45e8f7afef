"""`--mode compare`: evaluated experiments side by side, from their files alone."""

import json

import pytest
from runs import ROOT

import exp_runner

BASE = {
    "scene": "jug",
    "model": "neus",
    "step": 5000,
    "seconds": 152.4,
    "resolution": 256,
    "world_per_radius": 2.5,
    "held_out": 4,
    "counts_first": "psnr",
    "psnr": 32.137,
    "ssim": 0.951,
    "ground_truth": "--gt jug.ply",
    "chamfer": 0.00481,
    "tau": 0.01,
}
CONF = {"train.learning_rate": 5e-4, "train.end_iter": 5000, "model.surface": "sdf_network", "dataset.roi": ""}


def experiment(folder, conf=None, **changes):
    """An evaluated experiment."""
    (folder / "report").mkdir(parents=True)
    content = {"experiment": str(folder), **BASE, **changes, "conf": {**CONF, **(conf or {})}}
    (folder / "report/metrics.json").write_text(json.dumps(content))
    return str(folder)


@pytest.fixture
def compare(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)

    def run(*words):
        status = exp_runner.main(["--mode", "compare", *words])
        return status, *capsys.readouterr()

    return run


def cells(told, label):
    (line,) = (line for line in told.splitlines() if line.strip().startswith(label))
    return [cell.strip() for cell in line.strip().split("  ") if cell.strip()][1:]


def test_what_differs_stands_on_top_and_the_figures_side_by_side(tmp_path, compare):
    first = experiment(tmp_path / "a")
    second = experiment(tmp_path / "b", {"train.learning_rate": 1e-3}, psnr=30.0, chamfer=None)
    third = experiment(tmp_path / "c", {"model.surface": "grid"}, step=6000, is_metric=True)
    status, told, err = compare(first, second, third)
    assert status == 0 and err == ""
    top, figures = told.split("held-out views")
    assert cells(top, "train.learning_rate") == ["0.0005", "0.001", "0.0005"]
    assert cells(top, "model.surface") == ["sdf_network", "sdf_network", "grid"]
    assert "end_iter" not in top and "dataset.roi" not in top and "not measured alike" not in told
    assert cells(figures, "PSNR, whole image") == ["32.14 dB", "30.00 dB", "32.14 dB"]
    assert cells(figures, "Chamfer distance") == [
        "0.0048 radii = 0.01203 world units",
        "-",
        "0.0048 radii = 0.01203 m",
    ]
    assert cells(figures, "steps") == ["5000", "5000", "6000"]
    assert "SSIM, inside the mask" not in told  # what none of them has


def test_figures_that_were_not_measured_alike_are_named(tmp_path, compare):
    first, second = experiment(tmp_path / "a"), experiment(tmp_path / "b", tau=0.02, ground_truth="--gt other.ply")
    _, told, _ = compare(first, second)
    assert "not comparable: the ground truths and the taus differ" in told
    assert cells(told.split("held-out")[0], "tau") == ["0.01", "0.02"]


def damaged(folder, content):
    experiment(folder)
    (folder / "report/metrics.json").write_bytes(content)
    return str(folder)


REFUSED = {
    "one": (lambda folder: [experiment(folder / "a")], "name the folders of two experiments or more"),
    "none": (lambda folder: [], "name the folders of two experiments or more"),
    "not evaluated": (lambda folder: [experiment(folder / "a"), f"{folder}/a/report"], "has no report/metrics.json"),
    "no folder": (lambda folder: [experiment(folder / "a"), "nowhere"], "nowhere: no such folder; there: "),
    "a long name": (lambda folder: [experiment(folder / "a"), "n" * 5000], "no such folder"),
    "no JSON": (lambda folder: [experiment(folder / "a"), damaged(folder / "b", b"{")], "cannot be read"),
    "no figures": (lambda folder: [experiment(folder / "a"), damaged(folder / "b", b"[]")], "contains no metrics"),
    "no text": (lambda folder: [experiment(folder / "a"), damaged(folder / "b", b"\xff")], "cannot be read"),
    "deep": (lambda folder: [experiment(folder / "a"), damaged(folder / "b", b"[" * 100_000)], "cannot be read"),
}


@pytest.mark.parametrize(("folders", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_one_sentence_and_no_table(folders, words, tmp_path, compare):
    status, told, err = compare(*folders(tmp_path))
    assert status == 2 and told == "" and words in err and err.count("\n") == 1

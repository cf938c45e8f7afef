"""`--mode compare`: evaluated experiments side by side, from their files alone."""

import json

import pytest
from browsing import PHONE, drag, opened, overflows, picture_of, slide
from runs import ROOT, run

import exp_runner
from models.results.report.document import data_of

BASE = {"scene": "jug", "model": "neus", "step": 5000, "seconds": 152.4, "resolution": 256, "world_per_radius": 2.5}
BASE |= {"test_photographs": 4, "counts_first": "psnr", "psnr": 32.137, "ssim": 0.951, "chamfer": 0.00481, "tau": 0.01}
BASE |= {"ground_truth": "--gt jug.ply"}
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
    return lambda *words: (exp_runner.main(["--mode", "compare", *words]), *capsys.readouterr())


def cells(told, label):
    (line,) = (line for line in told.splitlines() if line.strip().startswith(label))
    return [cell.strip() for cell in line.strip().split("  ") if cell.strip()][1:]


def test_what_differs_stands_on_top_and_the_figures_side_by_side(tmp_path, compare):
    first = experiment(tmp_path / "a")
    second = experiment(tmp_path / "b", {"train.learning_rate": 1e-3}, psnr=30.0, chamfer=None)
    third = experiment(tmp_path / "c", {"model.surface": "grid"}, step=6000, is_metric=True)
    status, told, err = compare(first, second, third)
    assert status == 0 and err == ""
    top, figures = told.split("test photographs")
    assert cells(top, "train.learning_rate") == ["0.0005", "0.001", "0.0005"]
    assert cells(top, "model.surface") == ["sdf_network", "sdf_network", "grid"]
    assert "end_iter" not in top and "dataset.roi" not in top and "not measured alike" not in told
    assert cells(figures, "PSNR, whole image") == ["32.14 dB", "30.00 dB", "32.14 dB"]
    distance = "0.0048 radii = 0.01203"
    assert cells(figures, "Chamfer distance") == [f"{distance} world units", "-", f"{distance} m"]
    assert cells(figures, "steps") == ["5000", "5000", "6000"]
    assert "SSIM, inside the mask" not in told  # what none of them has
    _, told, _ = compare(first, experiment(tmp_path / "d", tau=0.02, ground_truth="--gt other.ply"))
    assert "not comparable: the ground truths and the taus differ" in told
    assert cells(told.split("test photographs")[0], "tau") == ["0.01", "0.02"]


def damaged(folder, content):
    """A whole experiment, and one whose file has this content."""
    experiment(folder / "b")
    (folder / "b/report/metrics.json").write_bytes(content)
    return [experiment(folder / "a"), str(folder / "b")]


def several(folder):
    """A folder with two evaluated experiments, which does not say which one is meant."""
    experiment(folder / "both/a"), experiment(folder / "both/b")
    return str(folder / "both")


REFUSED = {
    "one": (lambda folder: [experiment(folder / "a")], "name the folders of two experiments or more"),
    "not evaluated": (lambda folder: [experiment(folder / "a"), f"{folder}/a/report"], "has no report/metrics.json"),
    "no folder": (lambda folder: [experiment(folder / "a"), "nowhere"], "nowhere: no such folder; there: "),
    "none of two folders": (lambda folder: ["nowhere", "elsewhere"], "elsewhere: no such folder"),
    "one of several, and none": (lambda folder: [several(folder), "nowhere"], "nowhere: no such folder"),
    "no JSON": (lambda folder: damaged(folder, b"{"), "cannot be read"),
}


@pytest.mark.parametrize(("folders", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_one_sentence_and_no_table(folders, words, tmp_path, compare):
    status, told, err = compare(*folders(tmp_path))
    assert status == 2 and told == "" and words in err and err.count("\n") == 1


def test_the_page_goes_where_it_is_told_and_nowhere_else(tmp_path, compare):
    first, second = experiment(tmp_path / "a"), experiment(tmp_path / "b", psnr=33.0, ground_truth="--gt other.ply")
    assert compare(first, second, "--output", str(tmp_path / "x.html"))[0] == 0
    assert not any(data_of((tmp_path / "x.html").read_bytes())["best"])  # values that cannot be compared
    third = experiment(tmp_path / "c", psnr=30.0, chamfer=0.004)
    assert compare(first, third, "--output", str(tmp_path / "y.html"))[0] == 0
    assert sorted(data_of((tmp_path / "y.html").read_bytes())["best"])[-2:] == [[1], [2]]
    (tmp_path / "b/report.html").write_bytes(b"a training")
    status, told, err = compare(first, second, "--output", str(tmp_path / "b/report.html"))
    assert status == 2 and "is the report of that experiment" in err
    assert (tmp_path / "b/report.html").read_bytes() == b"a training"
    status, told, err = compare(first, second, "--output", str(tmp_path / "x.png"))
    assert status == 2 and told == "" and "name a .html file" in err


@pytest.mark.browser
def test_sliders_and_meshes_of_runs_move_together(tmp_path, compare):
    settings = ("train.warm_up_end=1", "train.val_freq=2", "train.val_mesh_freq=4", "train.report_freq=2")
    for name, steps in (("short", 4), ("long", 8)):
        experiment(tmp_path / name, {"train.end_iter": steps})
        ending = ("train.mesh_resolution=24", f"train.end_iter={steps}")
        assert run(tmp_path / name, settings=(*settings, *ending)) == 0
    page_file = tmp_path / "x.html"
    assert compare(str(tmp_path / "short"), str(tmp_path / "long"), "--output", str(page_file))[0] == 0
    with opened(page_file.as_uri(), PHONE) as (page, errors):
        assert page.input_value("#steps-0") == "1" and page.input_value("#steps-1") == "3"
        newest = page.get_attribute("img[data-run='1']", "src")
        slide(page, "#steps-0", 0)
        assert page.input_value("#steps-1") == "0" and page.get_attribute("img[data-run='1']", "src") != newest
        page.click("#panel-normals")
        assert page.get_attribute("#panel-normals", "aria-pressed") == "true"
        page.locator("canvas.mesh").first.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('canvas.mesh').dataset.turn")
        assert picture_of(page, "canvas.mesh", tmp_path).std() > 5
        drag(page, "canvas.mesh", 90)
        page.locator("canvas.mesh").last.scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        turns = page.eval_on_selector_all("canvas.mesh", "all => all.map((e) => e.dataset.turn)")
        assert turns[0] == turns[1]
        assert page.locator("#figures td.best").count() == 0  # equal metrics
        assert "end_iter" in page.inner_text("#differs") and not overflows(page) and errors == []

"""compare.html: runs beside each other, whose sliders and meshes move together."""

import pytest
from browsing import DESKTOP, PHONE, drag, opened, overflows, picture_of, slide
from runs import run
from test_compare import compare, experiment  # noqa: F401 (a fixture)

from models.report.document import data_of, document

SETTINGS = ("train.warm_up_end=1", "train.val_freq=2", "train.val_mesh_freq=4", "train.report_freq=2")
SETTINGS += ("train.mesh_resolution=24", "train.end_iter=4")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs, of which the second has twice as many steps, with figures that nobody measured."""
    folders = []
    for name, steps in (("short", 4), ("long", 8)):
        folder = tmp_path_factory.mktemp("compare") / name
        experiment(folder, {"train.end_iter": steps})
        assert run(folder, settings=(*SETTINGS[:-1], f"train.end_iter={steps}")) == 0
        folders.append(str(folder))
    return folders


def test_the_page_goes_where_it_is_told_and_nowhere_else(tmp_path, compare):  # noqa: F811
    first, second = experiment(tmp_path / "a"), experiment(tmp_path / "b")
    assert compare(first, second, "--output", str(tmp_path / "x.html"))[0] == 0
    assert (tmp_path / "x.html").is_file() and not (tmp_path / "a/compare.html").exists()
    (tmp_path / "b/report.html").write_bytes(b"a training")
    status, told, err = compare(first, second, "--output", str(tmp_path / "b/report.html"))
    assert status == 2 and "is the report of that experiment" in err
    assert (tmp_path / "b/report.html").read_bytes() == b"a training"
    status, told, err = compare(first, second, "--output", str(tmp_path / "x.png"))
    assert status == 2 and told == "" and "name a .html file" in err


@pytest.mark.browser
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_sliders_and_meshes_move_together(runs, compare, tmp_path, size):  # noqa: F811
    assert compare(*runs, "--output", str(tmp_path / "x.html"))[0] == 0
    with opened((tmp_path / "x.html").as_uri(), size) as (page, errors):
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


@pytest.mark.browser
def test_better_values_are_marked_and_reasons_told(tmp_path, compare):  # noqa: F811
    first = experiment(tmp_path / "a", chamfer=0.004, seconds=10.0)
    second = experiment(tmp_path / "b", psnr=33.0, chamfer=0.0062)
    status = {"mesh": "mesh_none", "val_freq": 0, "state": "finished"}
    content = {"pictures": [], "photographs": {}, "mesh": None, "curves": {}, "status": status}
    (tmp_path / "a/report.html").write_bytes(document("report", "a", content, "en"))
    assert compare(first, second, "--output", str(tmp_path / "x.html"))[0] == 0
    with opened((tmp_path / "x.html").as_uri()) as (page, errors):
        best = "all => all.map((e) => [e.parentNode.cells[0].textContent, e.cellIndex])"
        marked = dict(page.eval_on_selector_all("#figures td.best", best))
        wanted = {"PSNR, whole image": 2, "Chamfer distance: mean of both": 1, "training time": 1}
        assert marked == wanted
        told = page.inner_text("#mesh")
        assert "train.val_mesh_freq = 0" in told and "no report.html that can be read" in told and errors == []


def test_values_of_runs_that_cannot_be_compared_are_not_marked(tmp_path, compare):  # noqa: F811
    first, second = experiment(tmp_path / "a"), experiment(tmp_path / "b", psnr=33.0, ground_truth="--gt other.ply")
    assert compare(first, second, "--output", str(tmp_path / "x.html"))[0] == 0
    assert not any(data_of((tmp_path / "x.html").read_bytes())["best"])

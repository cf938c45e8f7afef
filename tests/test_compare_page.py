"""compare.html: runs beside each other, whose sliders and meshes move together."""

import pytest
from browsing import DESKTOP, PHONE, drag, opened, overflows, picture_of, slide
from runs import run
from test_compare import compare, experiment  # noqa: F401 (a fixture)

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
        assert "end_iter" in page.inner_text("#differs") and not overflows(page) and errors == []

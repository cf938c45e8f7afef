"""report.html: what it holds, and what it does in a browser."""

import base64
import json

import numpy as np
import pytest
from browsing import DESKTOP, PHONE, drag, opened, overflows, picture_of, slide
from mesh_samples import textured_triangle
from runs import run

from models.evaluation import metric_table as metric_table
from models.report import parts
from models.report.document import data_of, document
from models.report.history import History, restored
from models.report.linked_files import linked_files

SETTINGS = ("train.end_iter=12", "train.warm_up_end=2", "train.save_freq=6", "train.val_freq=4", "train.report_freq=2")
SETTINGS += ("train.val_mesh_freq=6", "train.mesh_resolution=24")
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    assert run(folder, settings=SETTINGS) == 0
    return folder


def content(folder):
    return data_of((folder / "report.html").read_bytes())


@pytest.mark.slow
def test_the_page_of_a_training_holds_all_of_it(trained):
    found = content(trained)
    assert found["status"]["state"] == "finished" and found["status"]["step"] == 12
    assert found["curves"]["step"] == [2, 4, 6, 8, 10, 12]
    assert {"Loss/loss", "Statistics/psnr", "Statistics/learning_rate", "inv_s", "seconds", "memory", "speed"} <= set(
        found["curves"]
    )
    assert [shown["step"] for shown in found["pictures"]] == [4, 8, 12]
    assert set(found["pictures"][0]["panels"]) == {"rendering", "normals", "error", "distance"}
    assert found["mesh"]["step"] == 12 and found["mesh"]["colors"] and found["overview"].startswith("data:image/webp")
    colors = np.frombuffer(base64.b64decode(found["mesh"]["colors"]), np.uint8)
    assert 64 < colors.min() < colors.max() < 192  # a sigmoid of values near zero: the colour network has hardly begun
    assert len({shown["view"] for shown in found["pictures"]}) == 1 and found["pictures"][0]["held_out"]
    assert ["train.end_iter", "300000", "12"] in found["conf"]["differs"]
    assert ["dataset.test_views", "[]"] in found["conf"]["all"] and ["train.tf32", "false"] in found["conf"]["all"]
    assert "train.learning_rate_alpha" not in [row[0] for row in found["conf"]["differs"]]
    assert "jittor" in [row[0] for row in found["environment"]]


@pytest.mark.slow
def test_a_training_that_goes_on_keeps_the_course_before(trained, tmp_path, capsys):
    assert run(tmp_path, settings=("train.end_iter=6", *SETTINGS[1:])) == 0
    assert run(tmp_path, "--is_continue", settings=SETTINGS) == 0
    found = content(tmp_path)
    assert found["curves"]["step"] == content(trained)["curves"]["step"]
    assert [shown["step"] for shown in found["pictures"]] == [4, 6, 8, 12]
    (tmp_path / "report.html").write_text("<html>of someone else</html>")
    assert run(tmp_path, "--is_continue", settings=("train.end_iter=14", *SETTINGS[1:])) == 0
    assert "before step 12 cannot be read from it" in capsys.readouterr().err
    assert content(tmp_path)["curves"]["step"] == [14]


@pytest.mark.slow
def test_a_page_that_cannot_be_written_stops_no_training(tmp_path, capsys):
    (tmp_path / "report.html").mkdir()
    assert run(tmp_path, settings=("train.end_iter=4", *SETTINGS[1:], "train.val_mesh_freq=0")) == 0
    told = capsys.readouterr().err
    assert told.count("the report could not be written; the training continues: ") == 1


@pytest.mark.slow
def test_an_evaluation_puts_its_figures_into_the_page(trained, capsys):
    assert run(trained, "--mode", "evaluate", "--resolution", "24", "--language", "zh", settings=SETTINGS) == 0
    found = content(trained)
    assert ["held-out views"] in found["figures"] and found["language"] == "zh"
    assert any(row[0] == "PSNR, whole image" for row in found["figures"])
    assert found["curves"]["step"][-1] == 12
    assert [shown["step"] for shown in found["pictures"]] == [4, 8, 12] and found["pictures"][-1]["held_out"]
    metrics = json.loads((trained / "report" / "metrics.json").read_text())
    assert found["mesh"]["whole"] == metrics["triangles"] and found["mesh"]["step"] == 12
    assert run(trained, "--mode", "validate_mesh", "--resolution", "32", settings=SETTINGS) == 0
    finer = content(trained)
    assert finer["mesh"]["whole"] > found["mesh"]["whole"] and finer["figures"] == found["figures"]
    assert finer["language"] == "zh"


def test_the_image_of_an_evaluation_replaces_that_of_its_step():
    history = History()
    for step in (2, 4, 6):
        history.add_picture({"step": step, "view": "held-out 0"}, "a")
    history.put_picture({"step": 4, "view": 3}, "b")
    assert [(shown["step"], shown["view"]) for shown in history.pictures][1:] == [(4, 3), (6, "held-out 0")]
    assert history.photographs == {"held-out 0": "a", "3": "b"}


def test_all_formats_of_the_newest_mesh_are_linked(tmp_path):
    (tmp_path / "meshes").mkdir()
    for name in ("00000100.ply", "00000200.glb", "00000200.ply"):
        (tmp_path / "meshes" / name).touch()
    assert linked_files(tmp_path) == [["file_mesh", f"meshes/00000200{suffix}"] for suffix in (".glb", ".ply")]


@pytest.mark.parametrize(
    "damage", [{"curves": {"step": [1, 2], "x": [1]}}, {"pictures": [{"step": 1, "view": 7}]}, {"curves": 3}]
)
def test_a_damaged_history_is_refused(damage):
    with pytest.raises((ValueError, KeyError, TypeError)):
        restored(History().parts() | damage, 5)


def test_no_text_of_a_scene_ends_the_data(tmp_path):
    page = document("report", "</script><b>", {"x": "</script><script>alert(1)</script>", "y": float("nan")}, None)
    assert b"</script><script>alert" not in page and data_of(page)["y"] is None
    assert data_of(page)["title"] == "</script><b>"


@pytest.mark.browser
@SIZES
def test_the_page_in_a_browser(trained, tmp_path, size):
    with opened((trained / "report.html").as_uri(), size, "en-GB") as (page, errors):
        page.click("#language") if page.inner_text("#state") != "finished" else None  # the evaluation's --language zh
        page.locator("canvas.mesh").scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('canvas.mesh').dataset.turn > 0.05")  # it turns
        assert picture_of(page, "canvas.mesh", tmp_path).std() > 5  # and is not blank
        drag(page, "canvas.mesh", 80)
        page.wait_for_timeout(200)
        before = page.eval_on_selector("canvas.mesh", "e => Number(e.dataset.turn)")
        assert page.get_attribute("#turning", "aria-pressed") == "false"
        drag(page, "canvas.mesh", 100)
        page.wait_for_timeout(200)
        assert abs(page.eval_on_selector("canvas.mesh", "e => Number(e.dataset.turn)") - before + 1.0) < 0.05
        page.click("#cameras")
        assert page.get_attribute("#cameras", "aria-pressed") == "true"
        newest = page.get_attribute("img[data-panel=rendering]", "src")
        slide(page, "#steps", 0)
        assert "step 4 " in page.inner_text("#told")
        assert page.get_attribute("img[data-panel=rendering]", "src") != newest
        assert page.eval_on_selector("img[data-panel=normals]", "e => e.naturalWidth") > 10
        assert page.locator(".chart svg polyline").count() >= 6
        assert not overflows(page) and errors == []


def changed(found, folder, **values):
    """The page of `found` with other values, in a folder."""
    path = folder / "report.html"
    path.write_bytes(document("report", "a", {**found, "language": None, **values}, None))
    return path.as_uri()


@pytest.mark.browser
def test_the_page_shows_a_texture(trained, tmp_path):
    found = content(trained)
    part = {"step": 12, **parts.mesh_part(textured_triangle())}
    with opened(changed(found, tmp_path, mesh=part, up=[0, 1, 0], front=[0, 0, 1])) as (page, errors):
        page.locator("canvas.mesh").scroll_into_view_if_needed()
        page.click("#turning")
        page.wait_for_timeout(300)
        shown = picture_of(page, "canvas.mesh", tmp_path).reshape(-1, 3).astype(int)
        red, blue = shown[:, 0] - shown[:, 2], shown[:, 2] - shown[:, 0]
        assert (red > 150).sum() > 50 and (blue > 150).sum() > 50
        page.click("#shape")
        page.wait_for_timeout(200)
        plain = picture_of(page, "canvas.mesh", tmp_path).reshape(-1, 3).astype(int)
        assert (plain[:, 0] - plain[:, 2] < 100).all() and errors == []


@pytest.mark.browser
def test_charts_choose_axis_and_curves_and_are_smoothed(trained, tmp_path):
    found = content(trained)
    curves = {"step": [1, 2, 3, 4], "Loss/a": [0.0, 1000.0, 1.0, 10.0], "Loss/b": [5.0, 5.0, 7.0, None]}
    with opened(changed(found, tmp_path, curves=curves, pictures=[])) as (page, errors):
        chart, shown = "[data-chart=losses]", "[data-chart=losses] polyline"
        places = "(e) => e.getAttribute('points').split(' ').map((p) => p.split(',').map(Number))"
        assert page.inner_text(f"{chart} .axis") == "log"  # one zero among wide values does not make it linear
        log = page.eval_on_selector(shown, places)
        page.click(f"{chart} .axis")
        linear = page.eval_on_selector(shown, places)
        assert len(linear) == 4 and len(log) == 3 and page.inner_text(f"{chart} .axis") == "linear"
        page.click(f"{chart} .axis")
        assert abs((log[1][1] - log[2][1]) - (log[2][1] - log[0][1]) / 2) < 0.2
        page.click(f"{chart} [data-curve='Loss/a']")
        assert page.locator(shown).count() == 1
        assert page.get_attribute(f"{chart} [data-curve='Loss/a']", "aria-pressed") == "false"
        page.evaluate("draw()")  # choices outlast an update
        assert page.locator(shown).count() == 1 and page.inner_text(f"{chart} .axis") == "log"
        assert "10" in page.inner_text(f"{chart} [data-curve='Loss/a']")
        for low, high in ((27, 34.7), (66, 772), (4e-4, 0.02), (0.9, 9.9), (-3, 7), (0.367, 0.4264), (1, 2)):
            ticks = page.evaluate(f"ticksOf({low}, {high}, false)")
            assert 3 <= len(ticks) <= 6 and low <= ticks[0] < ticks[-1] <= high
        assert page.evaluate("smoothed([0, null, 4], 0.5)") == pytest.approx([0, None, 8 / 3])
        assert "7" in page.inner_text(f"{chart} [data-curve='Loss/b']")  # its last value, where it ended earlier
        slide(page, "#smoothing", 0.5)
        assert page.locator(shown).count() == 2 and errors == []  # the curve and, fainter, its values


@pytest.mark.browser
def test_a_divider_and_zoom_compare_rendering_and_photograph(trained, tmp_path):
    with opened(changed(content(trained), tmp_path)) as (page, errors):
        page.locator(".split").scroll_into_view_if_needed()
        box = page.locator(".split").bounding_box()
        page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"])
        assert abs(float(page.input_value("#divider")) - 0.25) < 0.02
        assert "75%" in page.eval_on_selector(".split .layer:nth-child(2)", "e => e.style.clipPath")
        page.click("#zoom_in")
        assert page.get_attribute(".split", "data-zoom") == "1.500"
        page.click("[role=button]:has([data-panel=error])")
        sources = page.eval_on_selector_all(".split img", "all => all.map((e) => e.src)")
        assert sources[1] == page.get_attribute("img[data-panel=error]", "src")
        assert sources[0] == page.get_attribute("img[data-panel=photograph]", "src")
        page.click("#zoom_all")
        assert page.get_attribute(".split", "data-zoom") == "1.000" and errors == []


@pytest.mark.browser
def test_menu_warnings_files_and_theme(trained, tmp_path):
    found = content(trained)
    files = found["files"]
    assert all((trained / path).is_file() for _, path in files)
    assert {"file_mesh", "file_checkpoint", "file_conf", "file_log"} <= {what for what, _ in files}
    with opened(changed(found, tmp_path, warnings=["one", "two"])) as (page, errors):
        assert page.inner_text("#warning_count") == "⚠ 2 warnings"
        targets = page.eval_on_selector_all("nav a", "all => all.map((e) => e.getAttribute('href').slice(1))")
        assert targets == page.eval_on_selector_all("section:has(h2)", "all => all.map((e) => e.id)")
        linked = page.eval_on_selector_all("#files a", "all => all.map((e) => e.getAttribute('href'))")
        assert linked == [path for _, path in files]
        assert "PSNR of images" in page.inner_text("#status") and "dB " not in page.inner_text("#status")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert light == "rgb(243, 246, 249)" and dark == "rgb(17, 23, 30)"
        page.emulate_media(color_scheme="dark")
        page.click("#theme")  # what the reader chose, not the system
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
        page.click("#wires")
        assert page.get_attribute("#wires", "aria-pressed") == "true" and errors == []


@pytest.mark.browser
def test_a_dark_system_has_a_dark_page(trained):
    with opened((trained / "report.html").as_uri()) as (page, errors):
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
        assert errors == []


@pytest.mark.browser
@pytest.mark.parametrize(("state", "told"), [("finished", "there was no surface"), ("stopped", "ended before one was")])
def test_the_reason_why_there_is_no_mesh(trained, tmp_path, state, told):
    found = content(trained)
    status = found["status"] | {"state": state, "mesh": "mesh_soon"}
    with opened(changed(found, tmp_path, status=status, mesh=None, mesh_words="")) as (page, errors):
        assert told in page.inner_text("#mesh") and errors == []


@pytest.mark.browser
def test_the_language_is_the_browser_s_until_another_is_chosen(trained, tmp_path):
    found = content(trained)
    warnings = ["step 4: no mesh yet: the level set is empty", "of another kind"]
    shown = {**found, "language": None, "warnings": warnings}
    (tmp_path / "report.html").write_bytes(document("report", "a", shown, None))
    with opened((tmp_path / "report.html").as_uri(), locale="zh-CN") as (page, errors):
        assert page.inner_text("#state") == "已完成" and page.inner_text("#pictures h2") == "图像"
        assert page.locator("ul.warnings li").all_inner_texts() == ["还没有网格。\n" + warnings[0], warnings[1]]
        page.click("#language")
        assert page.locator("ul.warnings li").all_inner_texts() == warnings
        assert page.inner_text("#state") == "finished" and errors == []
    (tmp_path / "report.html").write_bytes(document("report", "a", {**found, "language": "zh"}, "zh"))
    with opened((tmp_path / "report.html").as_uri()) as (page, errors):
        assert page.inner_text("#pictures h2") == "图像" and errors == []


@pytest.mark.browser
def test_an_open_page_follows_the_training(trained, tmp_path):
    found = content(trained) | {"language": None}
    status = found["status"] | {"state": "training", "step": 4, "updated": 1.0}
    early = found | {"status": status, "pictures": found["pictures"][:1], "mesh": None}
    (tmp_path / "report.html").write_bytes(document("report", "a", early, None))
    with opened((tmp_path / "report.html").as_uri()) as (page, errors):
        assert page.inner_text("#state") == "training" and "No mesh yet" in page.inner_text("#mesh")
        (tmp_path / "report.html").write_bytes(document("report", "a", found, None))
        page.evaluate("follow()")
        page.wait_for_function("document.querySelector('#state').textContent === 'finished'")
        assert page.locator("canvas.mesh").count() == 1 and page.get_attribute("#steps", "max") == "2"
        assert errors == []

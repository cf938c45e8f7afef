"""report.html: what it holds, and what it does in a browser."""

import base64
import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from browsing import DESKTOP, PHONE, drag, opened, overflows, picture_of, slide
from runs import run

from data.errors import UserError
from models.config.program import program_version
from models.mesh.mesh import Surface
from models.results.report import document as pages
from models.results.report.document import data_of, document, linked_files
from models.results.report.training_page import History

SETTINGS = ("train.end_iter=12", "train.warm_up_end=2", "train.save_freq=6", "train.val_freq=4", "train.report_freq=2")
SETTINGS += ("train.val_mesh_freq=6", "train.mesh_resolution=24")
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A training that stopped at half of its steps and went on."""
    folder = tmp_path_factory.mktemp("report")
    assert run(folder, settings=("train.end_iter=6", *SETTINGS[1:])) == 0
    assert run(folder, "--is_continue", settings=SETTINGS) == 0
    return folder


def content(folder):
    return data_of((folder / "report.html").read_bytes())


@pytest.mark.slow
def test_the_page_of_a_training_holds_all_of_it(trained):
    found = content(trained)
    assert found["status"]["state"] == "finished" and found["status"]["step"] == 12
    assert found["curves"]["step"] == [2, 4, 6, 8, 10, 12]
    curves = {"Loss/loss", "Statistics/psnr", "Statistics/learning_rate", "inv_s", "seconds", "memory", "speed"}
    assert curves <= set(found["curves"])
    parts = [column for name, column in found["curves"].items() if re.fullmatch("Loss/.+_loss", name)]
    assert len(parts) > 2 and np.allclose(np.sum(parts, axis=0), found["curves"]["Loss/loss"], rtol=1e-4), "weighted"
    assert dict(found["environment"])["version"] == program_version()
    assert [(shown["step"], shown["group"]) for shown in found["pictures"]] == [(n, "training") for n in (4, 6, 8, 12)]
    assert found["mesh"]["step"] == 12 and found["overview"].startswith("data:image/webp")
    colors = np.array(decoded(found["mesh"], "colors", np.uint8))
    assert 64 < colors.min() < colors.max() < 192  # a sigmoid of values near zero: the colour network has hardly begun
    assert ["train.end_iter", "300000", "12"] in found["conf"]["differs"]
    assert "train.learning_rate_alpha" not in [row[0] for row in found["conf"]["differs"]]
    assert all((trained / path).is_file() for _, path in found["files"])
    assert {"file_mesh", "file_checkpoint", "file_conf", "file_log"} <= {what for what, _ in found["files"]}


@pytest.mark.slow
def test_a_page_that_cannot_be_read_or_written_stops_no_training(trained, tmp_path, capsys):
    folder = shutil.copytree(trained, tmp_path / "copy")
    (folder / "report.html").write_text("<html>of someone else</html>")
    assert run(folder, "--is_continue", settings=("train.end_iter=14", *SETTINGS[1:])) == 0
    assert "cannot be read and is created again, without its history" in capsys.readouterr().err
    assert content(folder)["curves"]["step"] == [14]
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    assert run(folder, "--is_continue", settings=("train.end_iter=16", *SETTINGS[1:], "train.val_mesh_freq=0")) == 0
    assert capsys.readouterr().err.count("the report could not be written; the training continues: ") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("quick_figures")
def test_an_evaluation_puts_its_figures_into_the_page(trained):
    assert run(trained, "--mode", "evaluate", "--resolution", "24", "--language", "zh", settings=SETTINGS) == 0
    found = content(trained)
    assert ["test photographs"] in found["figures"] and "PSNR, whole image" in [row[0] for row in found["figures"]]
    assert [shown["step"] for shown in found["pictures"]] == [4, 6, 8, 12, 12]
    assert found["pictures"][-1]["group"] == "test"
    metrics = json.loads((trained / "report" / "metrics.json").read_text())
    assert found["mesh"]["whole"] == metrics["triangles"] and found["mesh"]["step"] == 12
    assert run(trained, "--mode", "validate_mesh", "--resolution", "32", settings=SETTINGS) == 0
    finer = content(trained)
    assert finer["mesh"]["whole"] > found["mesh"]["whole"] and finer["figures"] == found["figures"]
    assert finer["language"] == found["language"] == "zh"


def test_what_is_shown_of_files_and_history(tmp_path):
    """An evaluation's image, which replaces that of its step and view, and the newest mesh's formats."""
    history = History()
    for step in (2, 4, 6):
        history.add_picture({"step": step, "view": "training 0"}, "a")
    for view in ("training 0", "test 3"):
        history.put_picture({"step": 4, "view": view}, view)
    shown = [(shown["step"], shown["view"]) for shown in history.pictures]
    assert shown == [(2, "training 0"), (4, "training 0"), (4, "test 3"), (6, "training 0")]
    assert history.photographs == {"training 0": "training 0", "test 3": "test 3"}
    (tmp_path / "meshes").mkdir()
    for name in ("00000100.ply", "00000200.glb", "00000200.ply"):
        (tmp_path / "meshes" / name).touch()
    assert linked_files(tmp_path) == [["file_mesh", f"meshes/00000200{suffix}"] for suffix in (".glb", ".ply")]


def decoded(part, name, dtype, columns=3):
    return np.frombuffer(base64.b64decode(part[name]), dtype).reshape(-1, columns).tolist()


def test_a_textured_mesh_keeps_its_texture_or_is_decimated_with_colours(monkeypatch):
    mesh = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]], process=False)
    picture = np.zeros((2, 2, 3), np.uint8)
    picture[1, 0], picture[0, 1] = 10, 20  # lower left, upper right
    uv = np.array([[0.1, 0.1], [0.9, 0.9], [1.0, 1.0]], np.float32)
    surface = Surface(mesh, np.tile(np.float32([0, 0, 1]), (3, 1)), uv=uv, picture=picture)
    part = pages.mesh_part(surface)
    assert part["picture"].startswith("data:image/webp") and "colors" not in part
    assert decoded(part, "uv", "<f4", 2) == surface.uv.tolist()
    assert decoded(part, "normals", np.int8) == 3 * [[0, 0, 127]]
    assert "normals" not in pages.mesh_part(replace(surface, normals=None))
    monkeypatch.setattr(pages, "TEXTURED_FACES", 0)
    assert decoded(pages.mesh_part(surface), "colors", np.uint8) == [[10] * 3, [20] * 3, [20] * 3]
    ball = trimesh.creation.icosphere(5)
    surface = Surface(ball, None, np.rint((ball.vertices + 1) * 127.5).astype(np.uint8))
    part = pages.mesh_part(surface, 2000)
    assert part["whole"] == len(ball.faces) and 1500 < part["triangles"] <= 2100 and part["colors"]
    monkeypatch.setattr("models.mesh.clean.MOST_DECIMATED", 1000)
    with pytest.raises(UserError, match="20480 triangles, more than the 1000 that can be decimated for a page: lower"):
        pages.mesh_part(surface)


def test_no_text_of_a_scene_ends_the_data():
    page = document("report", "</script><b>", {"x": "</script><script>alert(1)</script>", "y": float("nan")}, None)
    assert b"</script><script>alert" not in page and data_of(page)["y"] is None
    assert data_of(page)["title"] == "</script><b>"


@pytest.fixture
def page_of(trained, tmp_path):
    """A function that opens the page of the training with other values, in no language or one; no error may show."""

    @contextmanager
    def opening(size=DESKTOP, locale="en-US", **values):
        path, language = tmp_path / "report.html", values.get("language")
        path.write_bytes(document("report", "a", {**content(trained), "language": None, **values}, language))
        with opened(path.as_uri(), size, locale) as (page, errors):
            yield page
            assert errors == []

    return opening


@pytest.mark.browser
@SIZES
def test_the_page_in_a_browser(page_of, tmp_path, size):
    with page_of(size, "en-GB") as page:
        page.locator("canvas.mesh").scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('canvas.mesh').dataset.turn > 0.05")  # it turns
        assert picture_of(page, "canvas.mesh", tmp_path).std() > 5  # and is not blank
        turns = []
        for distance in (80, 100):
            drag(page, "canvas.mesh", distance)
            page.wait_for_timeout(200)
            turns.append(page.eval_on_selector("canvas.mesh", "e => Number(e.dataset.turn)"))
        assert page.get_attribute("#turning", "aria-pressed") == "false" and abs(turns[1] - turns[0] + 1.0) < 0.05
        newest = page.get_attribute("img[data-panel=rendering]", "src")
        slide(page, "#steps", 0)
        assert "step 4 " in page.inner_text("#told")
        assert page.get_attribute("img[data-panel=rendering]", "src") != newest
        box = page.locator(".split").bounding_box()
        page.locator(".split").click(position={"x": 0.25 * box["width"], "y": 0.5 * box["height"]})
        assert "75%" in page.eval_on_selector(".split .layer:nth-child(2)", "e => e.style.clipPath")
        page.click("[role=button]:has([data-panel=error])")
        sources = page.eval_on_selector_all(".split img", "all => all.map((e) => e.src)")
        assert sources[1] == page.get_attribute("img[data-panel=error]", "src")
        assert page.locator(".chart svg polyline").count() >= 6 and not overflows(page)
        page.click("#theme")  # what the reader chose, not the system
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_charts_warnings_and_language_of_the_page(page_of):
    curves = {"step": [1, 2, 3, 4], "Loss/a": [0.0, 1000.0, 1.0, 10.0], "Loss/b": [5.0, 5.0, 7.0, None]}
    warnings = ["step 4: no mesh yet: the level set is empty", "of another kind"]
    figures = [["held-out views"], ["primary metrics", "inside the mask"]]
    figures += [["PSNR, whole image", "20.00 dB"], ["PSNR, inside the mask", "29.81 dB"]]
    with page_of(locale="zh-CN", curves=curves, warnings=warnings, figures=figures) as page:
        assert "测试照片的 PSNR 29.81 dB" in page.inner_text("#status")
        chart, shown = "[data-chart=losses]", "[data-chart=losses] polyline"
        for count in (3, 4):  # one zero among wide values does not make the axis linear
            assert page.eval_on_selector(shown, "e => e.getAttribute('points').split(' ').length") == count
            page.click(f"{chart} .axis")
        page.click(f"{chart} [data-curve='Loss/a']")
        page.evaluate("draw()")  # choices outlast an update
        assert page.locator(shown).count() == 1
        assert "7" in page.inner_text(f"{chart} [data-curve='Loss/b']")  # its last value, where it ended earlier
        told = page.locator("ul.warnings li")
        assert page.inner_text("#state") == "已完成"
        assert told.all_inner_texts() == ["还没有网格。\n" + warnings[0], warnings[1]]
        page.click("#language")
        assert page.inner_text("#state") == "finished" and told.all_inner_texts() == warnings


@pytest.mark.browser
def test_an_open_page_follows_the_training_and_says_why_there_is_no_mesh(trained, page_of, tmp_path):
    found, without = content(trained) | {"language": None}, {"mesh": None, "mesh_words": ""}
    status = found["status"] | {"mesh": "mesh_soon"}
    with page_of(status=status | {"state": "training", "step": 4, "updated": 1.0}, **without) as page:
        assert page.inner_text("#state") == "training" and "No mesh yet" in page.inner_text("#mesh")
        (tmp_path / "report.html").write_bytes(document("report", "a", found, None))
        page.evaluate("follow()")
        page.wait_for_function("document.querySelector('#state').textContent === 'finished'")
        assert page.locator("canvas.mesh").count() == 1 and page.get_attribute("#steps", "max") == "3"

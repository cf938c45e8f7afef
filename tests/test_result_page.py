"""result.html: the text of result.md, its images and commands, and the mesh, which is turned, lit and measured."""

from contextlib import contextmanager

import numpy as np
import pytest
import trimesh
from browsing import DESKTOP, PHONE, drag, opened, overflows, picture_of

from data.io.images import write_image
from models.mesh.mesh import Surface
from models.results.report.document import data_of, document, mesh_part
from models.results.report.reconstruction import HTML, RESULT, page, trust, write_pages

FIGURES = {"psnr": 24.5, "points_missing": 0.3, "world_per_radius": 2.5, "is_metric": True, "scale_error": 0.01}
FIGURES |= {"ncc": 0.63, "ncc_without_details": 0.6, "score_curve": [[step, 1.0, 20.0] for step in range(20)]}
COMMANDS = ("# train <again> & more", "python exp_runner.py --case 'a|b*c*' --mode train", "# last", "python x.py")
TILT = 0.3  # of the first view, radians above the horizon


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The pages of a reconstruction whose mesh is a coloured ball of radius 0.8; returns text and path."""
    folder = tmp_path_factory.mktemp("jug")
    (folder / RESULT).mkdir()
    ball = trimesh.creation.icosphere(5, 0.8)
    part = mesh_part(Surface(ball, rgb=np.rint((ball.vertices + 1) * 127.5).astype(np.uint8)))
    report = {"mesh": part, "up": [0, 0, 1], "front": [1, 0, 0]}
    (folder / "report.html").write_bytes(document("report", "jug", report, None))
    ball.export(folder / RESULT / "mesh.ply")
    for name in ("report.png", "overview.png", "without_details.png", "with_details.png"):
        write_image(folder / RESULT / name, np.full((40, 160, 3), 90, np.uint8))
    text = page("a_jug *1*", {}, FIGURES, COMMANDS, ["a **note** with `marks`"])
    write_pages(folder, "jug", text, FIGURES, None)
    assert (folder / RESULT / "result.md").read_text() == text
    return text, folder / RESULT / HTML


@contextmanager
def shown(path, size=DESKTOP, locale="en-US"):
    with opened(path.as_uri(), size, locale) as (page, errors):
        yield page
        assert errors == []


def turn_of(page):
    return page.eval_on_selector("canvas.mesh", "e => Number(e.dataset.turn)")


def click_middle(page):
    page.locator("canvas.mesh").click()
    page.wait_for_timeout(200)
    return turn_of(page)


@pytest.mark.browser
def test_two_clicks_measure_the_mesh_in_metres_and_a_drag_turns_it(result):
    with shown(result[1]) as page:
        page.wait_for_function("document.querySelector('canvas.mesh').dataset.turn > 0.05")  # it turns
        page.click("#measures")
        assert page.inner_text("#measured") == "click two points of the mesh"
        first = click_middle(page)
        assert page.inner_text("#measured") == "click the second point"
        drag(page, "canvas.mesh", 80)
        page.wait_for_timeout(300)
        assert page.inner_text("#measured") == "click the second point" and turn_of(page) < first - 0.5
        second = click_middle(page)
        cosine = np.cos(TILT) ** 2 * np.cos(second - first) + np.sin(TILT) ** 2
        chord = 0.8 * 2.5 * 2 * np.sin(0.5 * np.arccos(cosine))
        words, value, sign, error, unit = page.inner_text("#measured").split()
        assert float(error) == pytest.approx(0.01 * float(value), rel=0.1)
        assert (words, sign, unit) == ("distance", "±", "m") and float(value) == pytest.approx(chord, rel=0.01)
        click_middle(page)  # a third click begins again, and one beside the mesh is none
        page.locator("canvas.mesh").click(position={"x": 5, "y": 5})
        assert page.inner_text("#measured") == "click the second point"


@pytest.mark.browser
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_mesh_is_drawn_and_its_light_moves(result, tmp_path, size):
    with shown(result[1], size) as page:
        page.wait_for_function("document.querySelector('canvas.mesh').dataset.turn > 0.02")
        page.click("#turning")
        page.wait_for_timeout(300)
        plain = picture_of(page, "canvas.mesh", tmp_path)
        pictures = [plain]
        for light in (-1.5, 1.5):
            page.locator("#light").fill(str(light))
            page.wait_for_timeout(400)
            pictures.append(picture_of(page, "canvas.mesh", tmp_path))
        middle = plain.shape[1] // 2
        assert plain.std() > 20 and page.get_attribute("#lit", "aria-pressed") == "true" and not overflows(page)
        left, right = (picture[:, :middle].mean() - picture[:, middle:].mean() for picture in pictures[1:])
        assert left > right + 10, "light from the left, and from the right"
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.browser
def test_the_page_says_what_result_md_says_and_copies_its_commands(result):
    text, path = result
    assert path.stat().st_size < 6e6 and data_of(path.read_bytes())["text"] == text
    with shown(path, locale="zh-CN") as page:
        body = page.inner_text("body")
        assert page.inner_text("h1") == "a_jug *1*" and "a **note** with `marks`" in body
        assert all(sentence in body for sentence in trust(FIGURES)) and "24.50" in body
        assert page.locator("img").evaluate_all("all => all.map((e) => e.naturalWidth)") == [160] * 4
        assert page.locator(".split .tag").all_inner_texts() == ["without details", "with the details of photographs"]
        assert "by 0.63 (without details of the mesh 0.60)" in body
        head = "step · seconds · PSNR of four training photographs, reduced in size, dB"
        assert page.locator("summary").inner_text() == head
        assert page.locator("code").inner_text() == "--minutes"
        assert page.locator(".command pre").all_inner_texts() == [COMMANDS[1], COMMANDS[3]]
        assert "train <again> & more" in body
        button = page.locator(".command button").first
        button.click()
        assert page.evaluate("getSelection().toString()") == COMMANDS[1] and button.inner_text() == "已复制"


def test_without_a_mesh_or_a_report_the_page_has_its_text(result, tmp_path):
    (tmp_path / RESULT).mkdir()
    write_pages(tmp_path, "jug", result[0], {}, "zh")
    found = data_of((tmp_path / RESULT / HTML).read_bytes())
    assert found["mesh"] is None and found["images"] == {} and found["text"] == result[0]
    assert found["ruler"] == {"scale": 1.0, "unit": "radii", "error": None} and found["language"] == "zh"

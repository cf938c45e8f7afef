"""Masks: found in colours and files, refused where there is nothing to find."""

import sys
import types

import numpy as np
import pytest
from PIL import Image
from rendered_photographs import picture, save_with_exif

from data.errors import UserError
from data.io.images import write_image
from data.prepare import masks
from data.prepare.contact_sheet import contact_sheet


def disc(radius=35):
    """A noisy disc before a noisy backdrop, and where it is."""
    y, x = np.mgrid[:120, :160]
    truth = (x - 80) ** 2 + (y - 60) ** 2 < radius**2
    rgb = np.where(truth[..., None], (200, 30, 40), (30, 160, 60)) + np.random.default_rng(0).normal(
        0, 6, (120, 160, 3)
    )
    return np.clip(rgb, 0, 255).astype(np.uint8), truth


def overlap(mask, truth):
    return np.sum((mask > 127) & truth) / np.sum((mask > 127) | truth)


@pytest.mark.parametrize("radius", [35, 55])
def test_a_backdrop_of_one_colour_is_found_and_cut_away(tmp_path, radius):
    rgb, truth = disc(radius)
    write_image(tmp_path / "a.png", rgb)
    assert overlap(masks.finder("colorkey", [tmp_path / "a.png"])(rgb), truth) > 0.95


def test_grabcut_finds_what_differs_from_outside_the_sphere():
    rgb, truth = disc()
    pose = np.eye(4)
    pose[2, 3] = -3.0
    mask = masks.grab_cut(rgb, np.array([[130.0, 0, 80], [0, 130, 60], [0, 0, 1]]), pose)
    assert overlap(mask, truth) > 0.9


@pytest.mark.parametrize(
    "name", ["IMG_1.png", "IMG_1_mask.png", "IMG_1.jpg.png", "IMG_1.JPG.mask.png", "IMG_1_mask.JPG"]
)
def test_masks_have_the_names_that_common_programs_give_them(tmp_path, name):
    write_image(tmp_path / "IMG_11.png", np.zeros((2, 2), np.uint8))
    with pytest.raises(UserError, match=r"1 of 2 photographs have no mask, the first is IMG_1\.jpg"):
        masks.mask_files(tmp_path, ["IMG_1.jpg", "IMG_11.jpg"])
    (tmp_path / name).write_bytes((tmp_path / "IMG_11.png").read_bytes())
    source = "IMG_1.JPG" if "JPG.mask" in name else "IMG_1.jpg"
    assert [path.name for path in masks.mask_files(tmp_path, [source, "IMG_11.jpg"])] == [name, "IMG_11.png"]


def test_a_mask_is_turned_with_its_photograph(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), orientation=6)
    stored = np.zeros((20, 30), np.uint8)
    stored[2:5, 7:20] = 255
    for pixels in (stored, np.rot90(stored, -1).copy()):
        write_image(tmp_path / "mask.png", pixels)
        mask = masks.read_mask(tmp_path / "mask.png", (20, 30), tmp_path / "a.jpg")
        assert np.array_equal(mask, np.rot90(stored, -1))


def test_rembg_is_asked_for_only_where_it_and_its_model_are_there(monkeypatch, tmp_path):
    monkeypatch.setenv("U2NET_HOME", str(tmp_path))
    for found, words in ((None, "the package rembg is missing"), (object(), "its model u2net.onnx is not in")):
        monkeypatch.setattr(masks.importlib.util, "find_spec", lambda name, found=found: found)
        with pytest.raises(UserError, match=words):
            masks.require_rembg()
    (tmp_path / "u2net.onnx").touch()
    masks.require_rembg()
    nines = lambda rgb, session, only_mask: Image.fromarray(np.full(rgb.shape[:2], 9, np.uint8))  # noqa: E731
    fake = types.SimpleNamespace(new_session=lambda name: name, remove=nines)
    monkeypatch.setitem(sys.modules, "rembg", fake)
    assert (masks.finder("rembg", [])(picture()) == 9).all()


def test_the_contact_sheet_dims_what_is_cut_away():
    rgb = np.full((100, 200, 3), 200, np.uint8)
    sheet = contact_sheet([rgb] * 5, [255 * (np.indices((100, 200))[1] < 100).astype(np.uint8)] * 5)
    assert sheet.shape == (400, 600, 3)
    assert (sheet[50, 50] == 200).all() and (sheet[50, 150] == 60).all()

"""Random pixels that are drawn on the device: which, with which rays and colours, in all forms."""

import dataclasses

import numpy as np
import pytest
from forms import CUDA_FORMS, in_form

from data.cameras import camera_rays
from data.pixels import to_float
from data.scenes.sampler import HostPixels
from data.scenes.scene import Scene
from models.estimators import packed
from models.estimators.packed import DevicePixels, pixels_of
from models.machine.backend import DeviceInfo
from models.ops.source import REFERENCE

pytestmark = pytest.mark.unit
SIZES = ((9, 7), (12, 5), (4, 11))  # width, height of the photographs
WINDOWS = np.array([[2, 1, 9, 6], [0, 0, 12, 5], [1, 3, 3, 4]])  # left, top, right, bottom
AREAS = (WINDOWS[:, 2:] - WINDOWS[:, :2]).prod(axis=1)
FORMS = (REFERENCE, *CUDA_FORMS)


def unit_scene(**changes):
    """Photographs whose every pixel has another colour, seen by cameras around the sphere."""
    rng = np.random.default_rng(5)
    colours, start, images = rng.permutation(256 * 256), 0, []
    for width, height in SIZES:
        codes = colours[start : start + width * height].reshape(height, width)
        images.append(np.stack([codes // 256, codes % 256, codes % 7], axis=2).astype(np.uint8))
        start += width * height
    c2w = np.tile(np.eye(4), (len(SIZES), 1, 1))
    c2w[:, :3, :3] = np.linalg.qr(rng.normal(size=(len(SIZES), 3, 3)))[0]
    c2w[:, :3, 3] = rng.normal(size=(len(SIZES), 3)) * 2
    sizes = zip((7, 9, 5), SIZES, strict=True)
    intrinsics = np.array([[[f, 0.3, w / 2], [0, f * 1.1, h / 2], [0, 0, 1]] for f, (w, h) in sizes])
    masks = tuple(image[:, :, 1] for image in images)
    views = {"image_names": ("a", "b", "c"), "images": tuple(images), "masks": masks, "c2w": c2w}
    box = {"scene_to_world": np.eye(4), "bbox_min": -np.ones(3), "bbox_max": np.ones(3)}
    return dataclasses.replace(Scene(name="unit", intrinsics=intrinsics, **views, **box), **changes)


def drawn(form, count, seed=0, scene=None):
    """The arrays of a batch, and the pixels (x, y) found by their colours."""
    scene = scene or unit_scene()
    with in_form(form):
        pixels, jitter = DevicePixels(scene, WINDOWS).draw(np.random.default_rng(seed), count)
        found = {name: value.numpy() for name, value in {**vars(pixels.rays), "rgb": pixels.rgb}.items()}
        found |= {"view": pixels.view.numpy(), "jitter": jitter.numpy()}
        found |= {} if pixels.mask is None else {"mask": pixels.mask.numpy()}
    places = {
        (view, *colour): (x, y)
        for view, image in enumerate(scene.images)
        for y, row in enumerate(image.tolist())
        for x, colour in enumerate(map(tuple, row))
    }
    codes = np.rint(found["rgb"] * 255).astype(int)
    return found, np.array([places[view, *code] for view, code in zip(found["view"], codes.tolist(), strict=True)])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 500])
def test_rays_colours_and_masks_are_those_of_the_pixels(form, count):
    scene = unit_scene()
    found, places = drawn(form, count)
    assert found["jitter"].shape == found["mask"].shape == (count, 1) and found["view"].dtype == np.int32
    for view in np.unique(found["view"]):
        rows = found["view"] == view
        x, y = places[rows].T
        rays = camera_rays(places[rows], scene.intrinsics[view], scene.c2w[view])
        for name, values in vars(rays).items():
            np.testing.assert_allclose(found[name][rows], values, rtol=2e-7, atol=2e-7, err_msg=name)
        np.testing.assert_array_equal(found["rgb"][rows], to_float(scene.images[view][y, x]))
        np.testing.assert_array_equal(found["mask"][rows, 0], to_float(scene.masks[view][y, x]))


@pytest.mark.parametrize("form", CUDA_FORMS)
def test_the_forms_draw_the_same(form):
    for scene in (unit_scene(), unit_scene(masks=None)):
        found, expected = drawn(form, 300, 3, scene)[0], drawn(REFERENCE, 300, 3, scene)[0]
        assert found.keys() == expected.keys() and ("mask" in found) == (scene.masks is not None)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=2e-7, atol=2e-7, err_msg=name)


def test_pixels_are_equally_probable_and_their_numbers_independent():
    count = 40000
    found, places = drawn(REFERENCE, count)
    expected = count / AREAS.sum()
    for view, (left, top, right, bottom) in enumerate(WINDOWS):
        hits, rows = np.zeros((bottom - top, right - left), int), found["view"] == view
        x, y = places[rows].T
        np.add.at(hits, (y - top, x - left), 1)
        assert abs(hits.sum() - expected * AREAS[view]) <= 2  # stratified
        assert np.abs(hits - expected).max() < 5 * expected**0.5
        assert ((hits - expected) ** 2 / expected).sum() == pytest.approx(hits.size, abs=5 * (2 * hits.size) ** 0.5)
        if bottom - top == 1:
            continue
        numbers = (x - left) / (right - left), (y - top) / (bottom - top), found["jitter"][rows, 0]
        assert np.abs(np.corrcoef(numbers) - np.eye(3)).max() < 5 / rows.sum() ** 0.5
        assert np.abs(np.corrcoef(numbers[2][1:], numbers[2][:-1])[0, 1]) < 5 / rows.sum() ** 0.5
    assert found["jitter"].min() >= 0 and found["jitter"].max() < 1
    assert np.histogram(found["jitter"], 20, (0, 1))[0] == pytest.approx(count / 20, abs=5 * (count / 20) ** 0.5)


def test_rays_are_sorted_by_view_and_begin_with_any():
    firsts = []
    for seed in range(200):
        view = drawn(REFERENCE, 30, seed)[0]["view"]
        assert np.count_nonzero(np.diff(np.append(view, view[0])) < 0) == 1  # in a circle
        firsts.append(view[0])
    assert np.bincount(firsts) / 200 == pytest.approx(AREAS / AREAS.sum(), abs=0.12)
    one, other, again = (drawn(REFERENCE, 200, seed)[0] for seed in (1, 2, 1))
    assert not np.array_equal(one["rgb"], other["rgb"])
    assert all(np.array_equal(one[name], again[name]) for name in one)


def test_photographs_are_kept_on_a_gpu_that_they_fit(monkeypatch, caplog):
    plain = unit_scene()
    assert isinstance(pixels_of(plain, WINDOWS), HostPixels)  # on the CPU
    needed = sum(image.nbytes for image in (*plain.images, *plain.masks))
    on_gpu(monkeypatch, needed / packed.MOST_OF_MEMORY)
    assert isinstance(pixels_of(plain, WINDOWS), DevicePixels) and caplog.text == ""
    deep = unit_scene(images=tuple(image.astype(np.uint16) for image in plain.images))
    for scene, free in ((plain, 100), (deep, 1e9)):
        on_gpu(monkeypatch, free)
        assert isinstance(pixels_of(scene, WINDOWS), HostPixels)
        assert caplog.text.count("stay in main memory") == 1
        caplog.clear()


def on_gpu(monkeypatch, free):
    monkeypatch.setattr(packed.backend, "device_info", lambda: DeviceInfo("cuda", "", 1, 1.0, ""))
    monkeypatch.setattr(packed.backend, "device_free_bytes", lambda: int(free))

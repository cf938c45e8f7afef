"""Splats as operations: golden numbers, float64 by the words of the definition, and what holds whatever the splats."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import parity
import pytest
from forms import CUDA_FORMS, OWN_FORMS, in_form, only_on_the_cpu
from forms import FORMS as ALL_FORMS
from method_oracles import camera, conics64, picture64, random_splats

from models.machine.backend import jt
from models.ops.gaussians.picture_loss import picture_loss
from models.ops.gaussians.splat_project import project_ellipsoids, project_surfels, shade_splats
from models.ops.gaussians.splat_raster import FIRST, FRONT, HIT, NEAREST_HIT, OPACITY, SECOND, Look, Raster
from models.ops.gaussians.splat_raster import composite_ellipsoids as of_ellipsoids
from models.ops.gaussians.splat_raster import composite_surfels as of_surfels
from models.ops.source import NATIVE, REFERENCE, use

GOLDEN = Path(__file__).parent / "golden"
FORMS = {"ellipsoids": "gaussians_3d_small", "surfels": "gaussians_2d_small"}
SIZE = (40, 30)
NAMES = ("means", "quats", "sizes", "opacities", "dc", "rest")


@pytest.mark.parametrize("form", ALL_FORMS)
@pytest.mark.parametrize("name", FORMS.values())
def test_golden_numbers_lie_within_their_bounds(name, form):
    with in_form(form):
        rows = parity.compare(GOLDEN / f"{name}.npz")
    assert [row for row in rows if not row.passed] == [] and len(rows) >= 15
    assert any(row.name == "grad_means2d" for row in rows)


@pytest.mark.parametrize("form", ALL_FORMS)
def test_the_conics_of_needles_are_not_lost_in_rounding(form):
    splats = random_splats(60, seed=11)
    splats["sizes"][:] = [0.0, -6.0, -6.0]
    seen_from = jt.array(camera((400, 300)))
    with in_form(form):
        values = [jt.array(splats[name].astype(np.float32)) for name in ("means", "quats", "sizes")]
        conics = project_ellipsoids(*values, seen_from, 400, 300).conics.numpy()
    expected = conics64(splats, (400, 300))
    assert np.abs(conics - expected).max() <= 1e-4 * np.abs(expected).max()


def shown(form, splats, size=SIZE, degree=3, distance=3.0, composed=NATIVE):
    """The picture and the splats; `composed` is the form that lays splats over each other, the others are native."""
    values = [jt.array(splats[name].astype(np.float32)) for name in NAMES]
    means, quats, sizes, opacities, dc, rest = values
    seen_from = jt.array(camera(size, distance))
    surfels = form == "surfels"
    seen = (project_surfels if surfels else project_ellipsoids)(means, quats, sizes, seen_from, *size)
    colors = shade_splats(means, dc, rest, seen_from, degree)
    look = Look(colors, opacities.sigmoid(), jt.array(np.array([0.1, 0.2, 0.3], np.float32)))
    with use(composed):
        picture = (of_surfels if surfels else of_ellipsoids)(seen, look, Raster(*size))
    return picture, values


def gradients(form, splats, **named):
    """Picture and gradients of a loss that touches every channel."""
    picture, values = shown(form, splats, **named)
    weights = np.random.default_rng(5).normal(size=picture.shape).astype(np.float32)
    found = jt.grad((picture * jt.array(weights)).sum(), values)
    return picture.numpy(), [value.numpy() for value in found]


@pytest.mark.parametrize("form", FORMS)
def test_the_picture_is_that_of_the_definition(form):
    splats = random_splats(80, seed=1)
    picture = shown(form, splats)[0].numpy()
    np.testing.assert_allclose(picture[..., [0, 1, 2, 3, -1]], picture64(form, splats, SIZE), atol=2e-4)


SHOWN = [*((form, 3.0) for form in FORMS), ("surfels", 0.3)]
cases = pytest.mark.parametrize(("form", "distance"), SHOWN)


def assert_alike(found, expected, share, names=NAMES):
    for name, ours, theirs in zip(names, found, expected, strict=False):
        assert np.abs(ours - theirs).max() <= share * np.abs(theirs).max(), name


@cases
def test_both_forms_give_the_same_gradients(form, distance):
    splats = random_splats(60, seed=2)
    picture, native = gradients(form, splats, distance=distance)
    expected_picture, expected = gradients(form, splats, distance=distance, composed=REFERENCE)
    channels = (slice(8), *([FRONT] if form == "surfels" else []))
    if distance < 1.0:  # the distortion of surfels that reach the camera is bounded
        channels = (FIRST, SECOND)
        assert (picture[..., HIT] / np.maximum(picture[..., OPACITY], 1e-3)).min() < NEAREST_HIT
        variance = picture[..., OPACITY] * picture[..., SECOND] - picture[..., FIRST] ** 2
        assert 0.1 < variance.max() <= (0.5 / NEAREST_HIT) ** 2
    for channel in channels:
        atol = 1e-3 if distance < 1.0 else 1e-4
        np.testing.assert_allclose(picture[..., channel], expected_picture[..., channel], atol=atol)
    assert_alike(native, expected, 2e-3)


def bits(picture, grads):
    return b"".join(array.tobytes() for array in (picture, *grads))


@cases
def test_cuda_gives_the_same_bits_in_any_order_and_the_cpus_numbers(form, distance):
    splats, found = random_splats(150, seed=2), set()
    for order in CUDA_FORMS:
        with in_form(order):
            picture, grads = gradients(form, splats, distance=distance)
        found.add(bits(picture, grads))
    assert len(found) == 1
    with jt.flag_scope(use_cuda=0):
        expected_picture, expected = gradients(form, splats, distance=distance)
    assert_alike([picture, *grads], [expected_picture, *expected], 2e-5, ("picture", *NAMES))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_finite_differences_in_float64(form):
    splats = random_splats(12, seed=3, opacity=(-1.0, 1.0), size=(-2.2, -1.5))
    weights = np.random.default_rng(5).normal(size=(SIZE[1], SIZE[0], 5))
    picture, values = shown(form, splats)
    channels = jt.concat([picture[:, :, :4], picture[:, :, -1:]], dim=2)
    found = jt.grad((channels * jt.array(weights.astype(np.float32))).sum(), values)
    step = 1e-7

    def energy(name, place, by):
        moved = {**splats, name: splats[name].copy()}
        moved[name][place] += by
        return (picture64(form, moved, SIZE) * weights).sum()

    for name, ours in zip(NAMES, found, strict=True):
        ours, errors = ours.numpy(), []
        for place in np.ndindex(*splats[name].shape):
            if name != "rest" or place[0] <= 2:
                slope = (energy(name, place, step) - energy(name, place, -step)) / (2 * step)
                errors.append(abs(slope - ours[place]))
        # Where a cut is crossed within the step, the picture jumps and has no slope: at a place or two at the most.
        assert np.sort(errors)[: max(1, len(errors) - 2)].max() <= 2e-3 * np.abs(ours).max() + 1e-4, name


@pytest.mark.parametrize("form", FORMS)
def test_threads_change_no_bit(form, openmp_threads):
    splats, found = random_splats(3000, seed=4), set()
    for threads in (1, 2, 5):
        openmp_threads(threads)
        found.add(bits(*gradients(form, splats, size=(100, 70))))
    assert len(found) == 1


EXTREME = [("means", -10.0), ("sizes", 4.0), ("sizes", -30.0), ("opacities", 30.0), ("quats", 0.0), ("none", 0.0)]


@pytest.mark.parametrize("device", OWN_FORMS[:2])
@pytest.mark.parametrize("form", FORMS)
def test_extreme_splats_give_finite_pictures_and_gradients(form, device):
    for name, value in EXTREME:
        splats = random_splats(30, seed=6)
        splats.get(name, np.empty(1))[...] = value
        with in_form(device):
            picture, grads = gradients(form, splats, size=(1, 1) if name == "none" else SIZE)
        assert np.isfinite(picture).all() and all(np.isfinite(array).all() for array in grads), name
        assert name != "means" or np.allclose(picture[..., :3], [0.1, 0.2, 0.3]) and not picture[..., 3:].any()
        assert name != "means" or not any(array.any() for array in grads)  # all are behind the camera


@pytest.mark.cli
@only_on_the_cpu
def test_splats_that_cover_the_picture_take_memory_in_proportion():
    program = (  # a process of its own: the peak of this one is that of all its tests
        "from benchmarks.serve import peak_bytes; from test_splats import gradients, random_splats; peaks = []\n"
        "for count in (200, 20000):\n"  # each splat lies on every tile: 400 pairs
        "    splats = random_splats(count, seed=9, size=(1.0, 1.5), opacity=(-5.0, -4.0))\n"
        "    gradients('ellipsoids', splats, size=(320, 320), degree=0); peaks.append(peak_bytes())\n"
        "print(peaks[1] - peaks[0])"
    )
    paths = os.environ | {"PYTHONPATH": f"{GOLDEN.parent}:{GOLDEN.parents[1]}"}
    grown = int(subprocess.check_output([sys.executable, "-c", program], env=paths, text=True))
    assert grown < 400 * 20000 * 16  # bytes: 16 for each pair, 3 to 5 are seen


@pytest.mark.parametrize("shape", [(30, 41), (1, 1)])
def test_the_picture_loss_and_its_slope_are_the_references(shape):
    rng = np.random.default_rng(0)
    picture, photograph = (rng.random((*shape, 3)).astype(np.float32) for _ in range(2))
    found = []
    for form in ALL_FORMS:
        with in_form(form):
            values = jt.array(picture)
            loss = picture_loss(values, jt.array(photograph), 0.2)
            found.append((loss.numpy(), jt.grad(loss, [values])[0].numpy()))
    loss, slope = found[ALL_FORMS.index(REFERENCE)]
    for form in (0, *range(2, len(ALL_FORMS))):
        np.testing.assert_allclose(found[form][0], loss, rtol=1e-5)
        np.testing.assert_allclose(found[form][1], slope, atol=1e-5 * np.abs(slope).max() + 1e-9)

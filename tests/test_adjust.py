"""Camera refinement: perturbed cameras are corrected, accurate ones kept, in the given world frame."""

from dataclasses import replace

import numpy as np
import pytest
from rendered_photographs import HEIGHT, WIDTH, K, off_walls, walls
from rendered_photographs import WALL_FOCAL as FOCAL
from scipy.spatial.transform import Rotation

from data.io.images import write_image
from data.parsed_scene import Lens
from data.prepare import adjust
from data.prepare.adjust import adjusted, located
from data.prepare.load import load_held_out, load_scene
from data.scenes.config import DatasetConfig


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    return walls(tmp_path_factory.mktemp("walls"))


def moved(parsed, pixels, seed=0):
    """Each camera turned and shifted by about so many pixels."""
    rng, found = np.random.default_rng(seed), []
    for posed in parsed.images:
        c2w = posed.c2w.copy()
        c2w[:3, :3] = Rotation.from_rotvec(rng.normal(size=3) * pixels / FOCAL / 1.4).as_matrix() @ c2w[:3, :3]
        c2w[:3, 3] += rng.normal(size=3) * 3 * pixels / FOCAL / 1.4
        found.append(replace(posed, c2w=c2w))
    return replace(parsed, images=tuple(found))


def distance(first, second):
    """Median pixels between where two captures see the walls."""
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-0.8, 0.8, 200), rng.uniform(-0.6, 0.6, 200)
    places = np.stack([x, y, -0.375 * np.abs(x), np.ones(200)])
    away = []
    for one, other in zip(first.images, second.images, strict=True):
        seen = [p.lens.intrinsics @ (np.linalg.inv(p.c2w) @ places)[:3] for p in (one, other)]
        away.append(np.linalg.norm(seen[0][:2] / seen[0][2] - seen[1][:2] / seen[1][2], axis=0))
    return float(np.median(away))


@pytest.mark.slow
def test_cameras_that_are_right_stay(parsed):
    found = adjusted(parsed, False)
    assert distance(found, parsed) < 0.3 and "cameras adjusted to" in found.notes[-1]
    assert len(found.points.xyz) > 200 and (found.points.n_views >= 2).all()
    assert np.median(off_walls(found.points.xyz)) < 0.01


@pytest.mark.slow
def test_moved_cameras_are_found_again_and_lose_their_region_if_far(parsed):
    for pixels in (1, 5, 25):
        off = replace(moved(parsed, pixels), scale_mat=np.eye(4))
        found = adjusted(off, False)
        assert (found.scale_mat is None) == ("recomputed" in found.notes[-1]) == (pixels == 25)
        assert np.median(found.points.error) < 0.1
        # A transform common to all cameras cannot be observed: for nine cameras, a third of their error remains.
        assert pixels == 25 or distance(off, parsed) > 0.8 * pixels and distance(found, parsed) < 0.6 * pixels


@pytest.mark.slow
def test_a_focal_length_is_found_where_it_is_asked_for(parsed):
    wrong = K * [[1.04], [1.04], [1.0]] + np.array([[0, 0, K[0, 2] * -0.04], [0, 0, K[1, 2] * -0.04], [0, 0, 0]])
    off = replace(parsed, images=tuple(replace(p, lens=replace(p.lens, intrinsics=wrong)) for p in parsed.images))
    kept, found = (adjusted(off, refines).images[0].lens.intrinsics[0, 0] for refines in (False, True))
    assert kept == wrong[0, 0] and abs(found / FOCAL - 1) < 0.02


@pytest.mark.slow
def test_other_photographs_are_located_between_cameras_that_stay(parsed, tmp_path):
    """With the focal length that was found for their lens; one of noise keeps its pose."""
    wide = Lens(K * [[1.1], [1.1], [1.0]], size=(WIDTH, HEIGHT))
    given = replace(parsed, images=tuple(replace(posed, lens=wide) for posed in parsed.images))
    at = slice(2, 8, 3)
    true, off = replace(parsed, images=parsed.images[at]), replace(parsed, images=moved(given, 5).images[at])
    training = [replace(one, images=(*one.images[:2], *one.images[3:5], *one.images[6:])) for one in (given, parsed)]
    found = replace(parsed, images=located(off.images, *training))
    assert distance(off, true) > 4 and distance(found, true) < 0.2
    write_image(tmp_path / "noise.png", np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8))
    (noise,) = located([replace(off.images[0], path=tmp_path / "noise.png")], *training)
    assert noise.c2w is off.images[0].c2w


def test_both_halves_of_a_scene_have_the_same_adjusted_cameras(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(adjust, "_adjusted", lambda parsed, focal: calls.append(focal) or parsed)
    conf = DatasetConfig("data/demo", "cameras_sphere.npz", "cameras_sphere.npz", test_every=8, refine_cameras="focal")
    load_held_out(conf, load_scene(conf))
    assert calls == [True]

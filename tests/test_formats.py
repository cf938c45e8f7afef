"""Every format through the one door: what `load_scene` makes of it shows the sphere where its rays meet the sphere."""

import dataclasses

import numpy as np
import pytest
from scene_writers import (
    make_views,
    write_blender,
    write_llff,
    write_metashape,
    write_nerfstudio,
    write_ngp,
    write_realitycapture,
    write_realitycapture_table,
)
from synthetic_scene import dataset_config

from data.prepare.load import load_held_out, load_scene

ALIKE = make_views(distorted=False, alike=True)
LENSES = make_views()
SQUARE = [dataclasses.replace(view, focal=view.focal[:1] * 2, p=(0.0, 0.0)) for view in LENSES]
WRITERS = {
    "blender": lambda folder: write_blender(folder, ALIKE, n_held_out=0),
    "ngp": lambda folder: write_ngp(folder, LENSES),
    "ngp, fisheye": lambda folder: write_ngp(folder, make_views(fisheye=True)),
    "nerfstudio": lambda folder: write_nerfstudio(folder, LENSES, masks=True),
    "llff": lambda folder: write_llff(folder, ALIKE),
    "metashape": lambda folder: write_metashape(folder, LENSES),
    "realitycapture": lambda folder: write_realitycapture(folder, SQUARE),
    "realitycapture, table": lambda folder: write_realitycapture_table(folder, SQUARE),
    "metashape, fisheye": lambda folder: write_metashape(folder, make_views(fisheye=True)),
}


def sphere_colours(rays, scene_to_world):
    """0.5 + 0.5 * normal [R, 3] of the world's unit sphere where rays of the working frame meet it, and cosines [R]."""
    origins = rays.origins @ scene_to_world[:3, :3].T + scene_to_world[:3, 3]
    directions = rays.directions @ scene_to_world[:3, :3].T
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    along = -np.sum(origins * directions, axis=1)
    inside = along**2 - np.sum(origins**2, axis=1) + 1
    normals = origins + (along - np.sqrt(np.maximum(inside, 0)))[:, None] * directions
    return 0.5 + 0.5 * normals, -np.sum(normals * directions, axis=1) * (inside > 0)


@pytest.mark.parametrize("name", WRITERS)
def test_a_scene_shows_the_sphere_where_its_rays_meet_it(tmp_path, name):
    WRITERS[name](tmp_path)
    downscale = 1 + (name in ("nerfstudio", "metashape, fisheye", "realitycapture"))
    scene = load_scene(dataset_config(tmp_path, roi="0.1 -0.05 0.2 1.3", downscale=downscale))
    assert scene.n_views == 6
    assert (scene.masks is not None) == (name in ("blender", "nerfstudio"))
    assert not scene.intrinsics[:, [0, 1, 2, 2], [1, 0, 0, 1]].any()  # no lens here has a skew
    for view in range(scene.n_views):
        rays, (height, width) = scene.rays(view)
        expected, squarely = sphere_colours(rays, scene.scene_to_world)
        misfit = scene.rgb_image(view).reshape(-1, 3) - expected
        seen = squarely > 0.6  # well inside the outline, where colours change little within a pixel
        assert seen.sum() > 0.1 * height * width
        assert np.abs(misfit[seen].mean(axis=0)).max() < 0.002  # half a pixel is 0.007 and more
        assert np.quantile(np.abs(misfit[seen]), 0.99) < 0.008


def test_what_a_format_holds_out_is_in_the_same_frame(tmp_path):
    write_blender(tmp_path, ALIKE)
    conf = dataset_config(tmp_path)
    training = load_scene(conf)
    held_out = load_held_out(conf, training)
    assert (training.n_views, held_out.n_views) == (4, 2)
    assert held_out.scene_to_world.tolist() == training.scene_to_world.tolist()
    centre = held_out.scene_to_world[:3, :3] @ held_out.c2w[1, :3, 3] + held_out.scene_to_world[:3, 3]
    np.testing.assert_allclose(centre, ALIKE[5].centre, atol=1e-9)

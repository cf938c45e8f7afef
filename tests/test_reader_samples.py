"""What each format's own tools write is recognised and read, to the numbers worked out by hand."""

import numpy as np
import pytest
from format_samples import write_blender_sample, write_llff_sample, write_nerfstudio_sample, write_ngp_sample

from data.readers.blender import read_blender
from data.readers.detect import recognise
from data.readers.llff import read_llff
from data.readers.nerfstudio import read_nerfstudio
from data.readers.ngp import read_ngp


def test_a_scene_of_nerf_synthetic(tmp_path):
    write_blender_sample(tmp_path)
    assert recognise(tmp_path) == "blender"
    train, test = read_blender(tmp_path, None).images
    assert (train.path.parent.name, train.is_held_out) == ("train", False)
    assert (test.path.parent.name, test.is_held_out) == ("test", True)
    assert train.lens.intrinsics == pytest.approx(np.array([[1111.111, 0, 399.5], [0, 1111.111, 399.5], [0, 0, 1]]))
    assert train.lens.size == (800, 800) and train.lens.distortion == () and train.mask_path is None
    # It stands at (-0.05, 3.85, 1.21) and looks down at the origin, upright: y of the picture goes down in the world.
    np.testing.assert_allclose(train.c2w[:3, 3], [-0.053798, 3.845470, 1.208082], atol=1e-6)
    towards = -train.c2w[:3, 3] / np.linalg.norm(train.c2w[:3, 3])
    np.testing.assert_allclose(train.c2w[:3, 2], towards, atol=1e-4)
    assert train.c2w[2, 1] == pytest.approx(-0.954037, abs=1e-6)


def test_a_scene_of_colmap2nerf(tmp_path):
    write_ngp_sample(tmp_path)
    assert recognise(tmp_path) == "ngp"
    parsed = read_ngp(tmp_path, None)
    (posed,) = parsed.images
    assert posed.lens.intrinsics.tolist() == [[1375.52, 0, 554.058], [0, 1374.49, 964.768], [0, 0, 1]]
    assert posed.lens.distortion == (0.0578421, -0.0805099, -0.000980296, 0.00015575) and not posed.lens.is_fisheye
    assert posed.lens.size == (1080, 1920)
    np.testing.assert_allclose(posed.c2w[:3, 2], [-0.442090, 0.894069, 0.072092], atol=1e-6)
    np.testing.assert_allclose(posed.c2w[:3, 1], [-0.087996, 0.036755, -0.995443], atol=1e-6)
    assert parsed.notes[0].startswith("transforms.json: 1 of 2 frames") and "./images/0002.png" in parsed.notes[0]


def test_a_scene_of_ns_process_data(tmp_path):
    write_nerfstudio_sample(tmp_path)
    assert recognise(tmp_path) == "nerfstudio"  # and not the COLMAP model it came from
    parsed = read_nerfstudio(tmp_path, None)
    (posed,) = parsed.images
    assert posed.path.parent.name == "images" and posed.lens.size == (540, 960)
    assert posed.lens.intrinsics[:2, 2] == pytest.approx([276.779, 482.134])
    np.testing.assert_allclose(posed.c2w[:3, 3], [3.168359, -5.479490, -0.979166], atol=1e-6)  # the file's world
    np.testing.assert_allclose(parsed.points.xyz, [[-0.352091, 1.070312, -0.500118], [1.25, 0.03125, 12.75]], atol=1e-6)
    assert parsed.points.rgb.tolist() == [[186, 161, 120], [13, 14, 15]]


def test_a_scene_of_llff(tmp_path):
    write_llff_sample(tmp_path)
    assert recognise(tmp_path) == "llff"
    first, second = read_llff(tmp_path, None).images
    assert first.c2w.tolist() == np.eye(4).tolist()
    assert second.c2w[:3, 3].tolist() == [0.25, -0.125, 0.5]
    focal = 3260.5263328805895
    assert first.lens.intrinsics.tolist() == [[focal, 0, 2015.5], [0, focal, 1511.5], [0, 0, 1]]
    assert first.lens.size == (4032, 3024)

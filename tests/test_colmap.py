"""COLMAP projects: what is written by the description of the format is seen at the same pixels when read."""

import re
import struct

import colmap_files
import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from data.config import DatasetConfig
from data.errors import SceneError
from data.io.images import write_image
from data.readers.colmap import read_colmap

CONF = DatasetConfig("", "cameras_sphere.npz", "cameras_sphere.npz")


def read(folder):
    return read_colmap(folder, CONF)


def seen_by(posed, xyz):
    """Pixels [N, 2] in this program's convention, by OpenCV."""
    w2c = np.linalg.inv(posed.c2w)
    turn, shift = cv2.Rodrigues(w2c[:3, :3])[0], w2c[:3, 3]
    lens = posed.lens
    distortion = np.array(lens.distortion or (0.0,) * 4)
    if lens.is_fisheye:
        pixels = cv2.fisheye.projectPoints(xyz[None], turn, shift, lens.intrinsics, distortion)[0]
    else:
        pixels = cv2.projectPoints(xyz, turn, shift, lens.intrinsics, distortion)[0]
    return pixels.reshape(-1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bin", "txt"])
def test_points_are_seen_where_the_format_says(tmp_path, kind):
    colmap_files.write_project(tmp_path, kind)
    parsed = read(tmp_path)
    quaternions, translations = colmap_files.poses(len(colmap_files.CAMERAS))
    xyz = colmap_files.points()
    assert len(parsed.images) == len(colmap_files.CAMERAS)
    for index, (model, (_, size, parameters)) in enumerate(colmap_files.CAMERAS.items()):
        w, x, y, z = quaternions[index]
        in_camera = Rotation.from_quat([x, y, z, w]).apply(xyz) + translations[index]
        expected = colmap_files.project(model, parameters, in_camera) - 0.5
        posed = parsed.images[index]
        assert posed.path.name == f"{index}_{model.lower()}.png"
        assert posed.lens.size == size
        assert np.abs(seen_by(posed, xyz) - expected).max() < 0.01, model


def test_points_keep_their_views_errors_and_colours(tmp_path):
    colmap_files.write_project(tmp_path, "bin")
    points = read(tmp_path).points
    order = np.argsort(points.rgb[:, 0])
    assert np.allclose(points.xyz[order], colmap_files.points())
    assert (points.n_views == len(colmap_files.CAMERAS)).all()
    assert np.allclose(points.error, 0.5)
    assert (points.rgb[order] == [(index, 20, 30) for index in range(colmap_files.N_POINTS)]).all()


def test_the_largest_of_several_models_is_taken_and_said(tmp_path):
    colmap_files.write_project(tmp_path, "bin", where="sparse/0", names=["a.png", "b.png"])
    colmap_files.write_project(tmp_path, "txt", where="sparse/1", names=["c.png", "d.png", "e.png"])
    parsed = read(tmp_path)
    assert [posed.path.name for posed in parsed.images] == ["c.png", "d.png", "e.png"]
    several, left_out = parsed.notes
    assert re.search(r"sparse.0 \(2\).*sparse.1 \(3\).*1, the largest, is used", several)
    assert re.search("2 photographs .* left out: a.png and b.png", left_out)


def project_with(folder, change):
    colmap_files.write_project(folder, "bin")
    change(folder)


def edited(path, old, new):
    def change(folder):
        content = (folder / "sparse/0" / path).read_bytes()
        assert old in content
        (folder / "sparse/0" / path).write_bytes(content.replace(old, new, 1))

    return change


def cut(path, keep):
    def change(folder):
        file = folder / "sparse/0" / path
        file.write_bytes(file.read_bytes()[:keep])

    return change


def as_text(edit):
    """The project as text, with one of its files changed."""

    def change(folder):
        for file in (folder / "sparse/0").iterdir():
            file.unlink()
        colmap_files.write_project(folder, "txt")
        edit(folder / "sparse/0")

    return change


def replaced(name, old, new):
    def edit(model):
        text = (model / name).read_text()
        assert old in text
        (model / name).write_text(text.replace(old, new, 1))

    return as_text(edit)


def remove(path):
    return lambda folder: (folder / path).unlink()


def without_images(folder):
    (folder / "images").rename(folder / "elsewhere")


def with_half_the_masks(folder):
    (folder / "masks").mkdir()
    write_image(folder / "masks" / "0_simple_pinhole.png", np.zeros((48, 64), np.uint8))


BROKEN = {
    "no images folder": (without_images, "no folder images/"),
    "a photograph missing": (remove("images/3_radial.png"), "1 of the model's 9 images are missing"),
    "no cameras file": (remove("sparse/0/cameras.bin"), "has no COLMAP model"),
    "cameras truncated": (cut("cameras.bin", 100), "truncated"),
    "images truncated": (cut("images.bin", -10), "truncated"),
    "images without a count": (cut("images.bin", 4), "truncated"),
    "points truncated": (cut("points3D.bin", 300), "truncated"),
    "empty points": (cut("points3D.bin", 0), "truncated"),
    "huge count": (edited("points3D.bin", struct.pack("<Q", 30), struct.pack("<Q", 1 << 60)), "truncated"),
    "huge track": (edited("points3D.bin", struct.pack("<dQ", 0.5, 9), struct.pack("<dQ", 0.5, 1 << 61)), "truncated"),
    "unknown camera": (edited("cameras.bin", struct.pack("<ii", 1, 0), struct.pack("<ii", 1, 99)), "camera model 99"),
    "which is not supported": (
        replaced("cameras.txt", "2 PINHOLE 80 60 70.0 72.0 40.25 29.0", "2 FOV 80 60 70.0 72.0 40.25 29.0 0.9"),
        "camera model FOV, which is not supported",
    ),
    "zero focal length": (edited("cameras.bin", struct.pack("<d", 60.0), struct.pack("<d", 0.0)), "invalid parameters"),
    "NaN focal length": (
        edited("cameras.bin", struct.pack("<d", 60.0), struct.pack("<d", np.nan)),
        "invalid parameters",
    ),
    "a name that leads out": (replaced("images.txt", "0_simple_pinhole.png", "../../x.png"), "is outside"),
    "a missing camera": (edited("images.bin", b"\x09\0\0\x008_radial", b"\x4d\0\0\x008_radial"), "cannot be read"),
    "text without sense": (replaced("images.txt", "\n1 ", "\n1 nonsense "), "the check at reconstruction_io"),
    "points of unknown images": (replaced("points3D.txt", " 0.5 1 0 ", " 0.5 4711 0 "), "4711"),
    "half the masks": (with_half_the_masks, "8 of 9 photographs have no mask, the first is 1_pinhole.png"),
    "no photographs": (as_text(lambda model: (model / "images.txt").write_text("# none\n")), "cannot be read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_project_gets_one_sentence(tmp_path, name):
    change, words = BROKEN[name]
    project_with(tmp_path, change)
    with pytest.raises(SceneError, match=re.escape(words)) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)

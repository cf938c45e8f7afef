"""Point clouds in PLY files: text and binary, with and without colours, none at all, damaged."""

import numpy as np
import pytest
import trimesh

from data.errors import SceneError
from data.readers.points import read_points

XYZ = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
HEADER = "ply\nformat ascii 1.0\nelement vertex {}\nproperty float x\nproperty float y\nproperty float z\nend_header\n"


def test_points_come_with_their_colours_or_grey(tmp_path):
    path = tmp_path / "points.ply"
    colours = np.arange(160, dtype=np.uint8).reshape(40, 4)
    trimesh.PointCloud(XYZ, colors=colours).export(path)
    points = read_points(path)
    np.testing.assert_array_equal(points.xyz, XYZ)
    np.testing.assert_array_equal(points.rgb, colours[:, :3])
    assert points.xyz.dtype == np.float64 and points.rgb.dtype == np.uint8
    assert points.n_views.tolist() == [0] * 40 and np.isnan(points.error).all()
    trimesh.PointCloud(XYZ).export(path)
    assert (read_points(path).rgb == 128).all()


def test_a_file_without_points_gives_none(tmp_path):
    (tmp_path / "none.ply").write_text(HEADER.format(0))
    assert read_points(tmp_path / "none.ply") is None


@pytest.mark.parametrize(
    "content", ["", "hello", "ply\n", HEADER.format(10**12) + "1 2 3\n", HEADER.format(2) + "1 2\n"]
)
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "points.ply").write_text(content)
    with pytest.raises(
        SceneError, match="points.ply: (cannot be read as a PLY file|is truncated: it has 1 of 1000000000000 points)"
    ):
        read_points(tmp_path / "points.ply")


@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
def test_points_at_infinity_are_named(tmp_path, value):
    (tmp_path / "points.ply").write_text(HEADER.format(1) + f"1 2 {value}\n")
    with pytest.raises(SceneError, match="points.ply: has points that are NaN or infinite"):
        read_points(tmp_path / "points.ply")

"""360-degree photographs are recognised and cut into the views that a perspective camera would see."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from data.demo.make_demo import look_at_center
from data.errors import UserError
from data.io.images import read_image
from data.parsed_scene import Lens, ParsedScene, PosedImage
from data.prepare.frames import Frame, copy_images, groups
from data.prepare.panorama import YAWS, cut, facing_views, is_tagged, require_no_mask_files, view_name
from data.prepare.progress import Bar

XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description GPano:ProjectionType="equirectangular"/></x:xmpmeta>'
WIDTH, HEIGHT = 512, 256


def panorama():
    """The image whose colours are 0.5 + 0.5 d for the direction d (x right, y down, z forward) of each pixel."""
    longitude = ((np.arange(WIDTH) + 0.5) / WIDTH - 0.5) * 2 * np.pi
    latitude = ((np.arange(HEIGHT) + 0.5) / HEIGHT - 0.5)[:, None] * np.pi
    flat = np.cos(latitude)
    directions = np.broadcast_arrays(flat * np.sin(longitude), np.sin(latitude), flat * np.cos(longitude))
    return np.rint(127.5 + 127.5 * np.stack(directions, axis=-1)).astype(np.uint8)


def test_each_pixel_of_a_view_shows_its_direction():
    for yaw, view, focal in cut(panorama(), 2048):
        side = view.shape[0]
        assert view.shape == (side, side, 3) and side == round(WIDTH / np.pi)
        assert focal == pytest.approx(side / 2, rel=1e-12)  # of a tangent: processors differ in its last bit
        for row, column in ((0, 0), (side // 2, side // 2), (side - 1, side // 3), (side // 4, side - 1)):
            x, y, z = (column + 0.5) / focal - 1, (row + 0.5) / focal - 1, 1.0
            turn = np.radians(yaw)
            direction = np.array([x * np.cos(turn) + z * np.sin(turn), y, z * np.cos(turn) - x * np.sin(turn)])
            expected = 127.5 + 127.5 * direction / np.linalg.norm(direction)
            assert np.abs(view[row, column] - expected).max() < 2.5
    assert {view.shape[0] for _, view, _ in cut(panorama(), 100)} == {100}


def test_tagged_photographs_and_those_of_the_flag_are_cut(tmp_path):
    photographs = [tmp_path / name for name in ("a.jpg", "b.jpg", "c.jpg")]
    for path, width, tag in zip(photographs, (WIDTH, WIDTH, 300), (XMP, b"", XMP), strict=True):
        Image.fromarray(panorama()[:, :width]).save(path, **({"xmp": tag} if tag else {}))

    def copied(paths, **options):
        with Bar("photographs", len(paths)) as bar:
            return [Frame(**frame) for frame in copy_images(paths, tmp_path / "out", bar, **options)]

    assert [is_tagged(path) for path in photographs] == [True, False, False]
    frames = copied(photographs)
    assert [frame.source for frame in frames] == [*(f"a.jpg ({yaw} degrees)" for yaw in YAWS), "b.jpg", "c.jpg"]
    assert groups(frames)[0].focal == pytest.approx(frames[0].width / 2) and len(groups(frames)[0].names) == 8
    assert read_image(tmp_path / "out" / frames[1].name).shape[:2] == (frames[1].height, frames[1].width)
    assert len(copied(photographs[:2], is_panorama=True)) == 16
    with pytest.raises(UserError, match=r"--panorama: c.jpg has 300x256 pixels"):
        copied(photographs, is_panorama=True)
    with pytest.raises(UserError, match="--masks box: masks and rectangles of 360-degree photographs"):
        require_no_mask_files(photographs, False, "box")
    require_no_mask_files(photographs[1:], False, "box")


def test_views_that_look_away_from_the_middle_are_left_out(tmp_path):
    intrinsics = np.array([[50.0, 0, 49.5], [0, 50.0, 49.5], [0, 0, 1]])
    images = []
    for number, angle in enumerate(np.linspace(0, 2 * np.pi, 4, endpoint=False)):
        inward = look_at_center(np.array([np.cos(angle), np.sin(angle), 0.0]))
        for yaw in YAWS:
            turned = inward.copy()
            turned[:3, :3] = inward[:3, :3] @ Rotation.from_euler("y", yaw + 5, degrees=True).as_matrix()
            path = tmp_path / view_name(number, yaw)
            images.append(PosedImage(path, Lens(intrinsics, size=(100, 100)), turned))
    images.append(replace(images[4], path=tmp_path / "0009.png"))  # an ordinary photograph
    parsed = ParsedScene("s", tmp_path, tuple(images))
    names = [image.path.name for image in facing_views(parsed, None).images]
    assert names == [*(view_name(number, yaw) for number in range(4) for yaw in (0, 315)), "0009.png"]
    assert len(facing_views(parsed, np.array([50.0, 0.0, 0.0])).images) > 3

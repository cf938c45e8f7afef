"""Photographs, frames and panoramas are taken upright, whole and sharp; what is not taken is named."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps
from rendered_photographs import picture, save_with_exif
from scipy.spatial.transform import Rotation

from data.demo.make_demo import look_at_center
from data.errors import UserError
from data.io import files
from data.io.images import read_image, write_image
from data.io.metadata import read_exif, upright
from data.parsed_scene import Lens, ParsedScene, PosedImage
from data.prepare import sources
from data.prepare.frames import (
    MAX_SIDE,
    YAWS,
    Frame,
    copy_images,
    copy_video,
    cut,
    facing_views,
    groups,
    is_tagged,
    require_no_mask_files,
    view_name,
)
from data.prepare.sources import find_images, frames
from data.prepare.steps import Bar


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_are_those_of_pillow(tmp_path, orientation):
    save_with_exif(tmp_path / "a.png", picture(), orientation)
    with Image.open(tmp_path / "a.png") as stored:
        expected = np.asarray(ImageOps.exif_transpose(stored))
    assert read_exif(tmp_path / "a.png")[0] == orientation
    assert np.array_equal(upright(picture(), orientation), expected)


def copied(folder, *names):
    with Bar("", len(names)) as bar:
        return [Frame(**frame) for frame in copy_images([folder / name for name in names], folder / "out", bar)]


def test_photographs_are_copied_as_they_are_or_turned_upright(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), focal=28)
    save_with_exif(tmp_path / "b.png", picture(seed=1), orientation=6)
    Image.fromarray(picture()).save(tmp_path / "c.webp", lossless=True)
    plain, turned, webp = copied(tmp_path, "a.jpg", "b.png", "c.webp")
    assert (tmp_path / "out" / plain.name).read_bytes() == (tmp_path / "a.jpg").read_bytes()
    assert np.array_equal(read_image(tmp_path / "out" / turned.name), np.rot90(picture(seed=1), -1))
    assert (turned.width, turned.height) == (20, 30)
    assert plain.focal == pytest.approx(28 / 43.2666 * np.hypot(30, 20), rel=1e-5)
    assert webp.name.endswith(".png") and np.array_equal(read_image(tmp_path / "out" / webp.name), picture())


def test_large_deep_and_transparent_photographs_become_plain_ones(tmp_path):
    write_image(tmp_path / "large.png", np.full((10, 2 * MAX_SIDE, 3), 7, np.uint8))
    cv2.imwrite(str(tmp_path / "deep.png"), np.full((9, 8, 3), 257 * 50, np.uint16))
    cv2.imwrite(str(tmp_path / "clear.png"), np.full((9, 8, 4), 60, np.uint8))
    frames = copied(tmp_path, "large.png", "deep.png", "clear.png")
    assert (frames[0].width, frames[0].height) == (MAX_SIDE, 5)
    for frame, value in zip(frames, (7, 50, 60), strict=True):
        pixels = read_image(tmp_path / "out" / frame.name)
        assert pixels.dtype == np.uint8 and pixels.shape[2] == 3 and (pixels == value).all()


@pytest.fixture
def clip(tmp_path):
    """24 frames, blurred but for 3, 10, 12 and 23; the brightness of the corner tells which is which."""
    base = cv2.resize(picture(60, 80, 5), (320, 240), interpolation=cv2.INTER_NEAREST)
    writer = cv2.VideoWriter(str(tmp_path / "clip.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (320, 240))
    for number in range(24):
        frame = base.copy() if number in (3, 10, 12, 23) else cv2.GaussianBlur(base, (0, 0), 4)
        frame[:40, :40] = 10 * number
        writer.write(frame)
    writer.release()
    return tmp_path / "clip.avi"


@pytest.mark.parametrize("name", ["clip.avi", "http:/clip.avi", "a%03d.avi"])
def test_the_sharpest_frames_are_taken_from_a_file_of_any_name(clip, tmp_path, monkeypatch, name):
    asked, library, path = [], cv2.VideoCapture, Path(name)
    monkeypatch.setattr(cv2, "VideoCapture", lambda given, *more: asked.append(given) or library(given, *more))
    monkeypatch.chdir(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    clip.rename(path)
    assert find_images(path) == [path]
    with Bar("", None) as bar:
        frames = [Frame(**frame) for frame in copy_video(path, 4, tmp_path / "out", bar)]
    assert [frame.source for frame in frames] == ["frame 3", "frame 10", "frame 12", "frame 23"]
    corners = [read_image(tmp_path / "out" / frame.name)[10:30, 10:30].mean() for frame in frames]
    assert np.allclose(corners, [30, 100, 120, 230], atol=3)
    assert set(asked) == {str(tmp_path / name)}, "never an address or a pattern"


def matrix(*rotation):
    """The matrix of a track of MP4 (ISO/IEC 14496-12, section 8.3.2), of a rotation [2, 2] by rows."""
    a, b, c, d = (round(value * 2**16).to_bytes(4, "big", signed=True) for value in rotation)
    return a + b + bytes(4) + c + d + bytes(12) + (2**30).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("turn", "row", "column"), [((0, 1, -1, 0), 0, -1), ((-1, 0, 0, -1), -1, -1), ((0, -1, 1, 0), -1, 0)]
)
def test_frames_of_a_turned_telephone_are_upright(tmp_path, turn, row, column):
    writer = cv2.VideoWriter(str(tmp_path / "a.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 10, (64, 48))
    frame = np.zeros((48, 64, 3), np.uint8)
    frame[:16, :16] = 255  # stored at the top left
    writer.write(frame)
    writer.release()
    whole = (tmp_path / "a.mp4").read_bytes()
    begin = whole.index(matrix(1, 0, 0, 1), whole.index(b"tkhd"))
    (tmp_path / "a.mp4").write_bytes(whole[:begin] + matrix(*turn) + whole[begin + 36 :])
    (found,) = frames(tmp_path / "a.mp4")
    assert found.shape == ((64, 48, 3) if turn[0] == 0 else (48, 64, 3)) and found[row, column].min() > 200


DAMAGED_AVI = b"RIFF\xff\xff\xff\xffAVI LIST" + b"\xff" * 500


@pytest.mark.parametrize("content", [b"", b"ffconcat version 1.0\nfile clip.avi\n", DAMAGED_AVI])
def test_what_is_no_video_is_refused_and_the_library_sees_containers_only(clip, monkeypatch, content):
    path = clip.with_name("a.mp4")
    path.write_bytes(content)
    if not content.startswith(b"RIFF"):
        monkeypatch.setattr(cv2, "VideoCapture", lambda *given: pytest.fail(f"{given} was opened"))
    with pytest.raises(UserError, match="is not a video that OpenCV can decode"):
        find_images(path)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Three photographs, where HEIC cannot be read."""
    monkeypatch.setattr(sources, "HEIC_PACKAGE", "no_such_package")
    (tmp_path / "photos").mkdir()
    for index in range(3):
        write_image(tmp_path / "photos" / f"{index}.png", picture())
    return tmp_path / "photos"


def test_each_kind_that_is_left_out_is_named(photos):
    (photos / "more").mkdir()
    (photos / "empty").mkdir()
    for name in (
        "IMG_2.HEIC",
        "IMG_1.heic",
        "b.gif",
        "c.BMP",
        "notes.txt",
        ".hidden.gif",
        "more/d.JPG",
        "0.CR2",
        "1.HEIC",
    ):
        (photos / name).write_bytes(b"x")
    (photos / "gone.jpg").symlink_to("nowhere.jpg")
    (photos / "loop.png").symlink_to("loop.png")
    os.mkfifo(photos / "pipe.jpg")
    assert [path.name for path in sources.find_images(photos)] == ["0.png", "1.png", "2.png"]
    expected = [
        "0.CR2 and 1.HEIC: left out, of the same shots",
        "IMG_1.heic and IMG_2.HEIC: HEIC, left out; run `pip install -r requirements-heic.txt`",
        "b.gif and c.BMP: left out, neither PNG, JPEG, WebP nor TIFF",
        "gone.jpg, loop.png and pipe.jpg: left out, a broken link",
        "more: left out, photographs in subfolders",
    ]
    notes = sources.left_out(photos)
    assert [note[: len(start)] for note, start in zip(notes, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [("2024/a.jpg", r"are in a subfolder \(2024\); give that"), ("a.gif", "JPEG, WebP or TIFF; a.gif: left out")],
)
def test_a_folder_without_photographs_says_why(photos, tmp_path, name, words):
    (tmp_path / "other" / name).parent.mkdir(parents=True)
    (tmp_path / "other" / name).write_bytes(b"x")
    with pytest.raises(UserError, match=words):
        sources.find_images(tmp_path / "other")


def test_more_photographs_in_subfolders_than_above_are_refused(photos):
    (photos / "top").mkdir()
    for index in range(4):
        (photos / "top" / f"{index}.png").write_bytes(b"x")
    with pytest.raises(UserError, match="holds 3 photographs, and its subfolders top hold 4; move those above them"):
        sources.find_images(photos)


def test_heic_is_read_where_its_package_is_installed(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    exif = Image.Exif()
    exif[0x0112], exif.get_ifd(0x8769)[0xA405] = 6, 28
    smooth = np.stack([*np.indices((240, 320)) / 2, np.full((240, 320), 90)], axis=-1).astype(np.uint8)
    for index in range(3):
        Image.fromarray(smooth).save(tmp_path / f"IMG {index}.HEIC", quality=95, exif=exif.tobytes())
    paths = sources.find_images(tmp_path)
    with Bar("", 3) as bar:
        frames = copy_images(paths, tmp_path / "out", bar)
    assert [frame["source"] for frame in frames] == ["IMG 0.HEIC", "IMG 1.HEIC", "IMG 2.HEIC"]
    assert [frames[0][key] for key in ("name", "width", "height")] == ["0000.png", 240, 320] and frames[0]["focal"] > 0
    stored = np.asarray(Image.open(tmp_path / "out" / "0000.png")).astype(int)
    assert np.abs(stored - np.rot90(smooth, -1).astype(int)).mean() < 3


def test_a_full_disk_is_not_blamed_on_the_photograph(photos, tmp_path, monkeypatch):
    def refuse(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_atomically", refuse)
    with pytest.raises(UserError, match="scene/prepare/.*No space left on device") as caught, Bar("", 3) as bar:
        copy_images(sources.find_images(photos), tmp_path / "scene" / "prepare", bar)
    assert str(photos) not in str(caught.value)


XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description GPano:ProjectionType="equirectangular"/></x:xmpmeta>'
WIDTH, HEIGHT = 512, 256  # of a panorama


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
    assert len(copied(photographs[:2], is_panorama=True)) == 16
    with pytest.raises(UserError, match=r"--panorama: c.jpg has 300x256 pixels"):
        copied(photographs, is_panorama=True)
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

"""Photographs and frames of videos are taken upright, whole and sharp."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps
from rendered_photographs import picture, save_with_exif

from data.errors import UserError
from data.io.images import read_image, write_image
from data.prepare.exif import read_exif, upright
from data.prepare.frames import MAX_SIDE, Frame, copy_images, copy_video
from data.prepare.progress import Bar
from data.prepare.sources import find_images


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_are_those_of_pillow(tmp_path, orientation):
    save_with_exif(tmp_path / "a.png", picture(), orientation)
    with Image.open(tmp_path / "a.png") as stored:
        expected = np.asarray(ImageOps.exif_transpose(stored))
    assert read_exif(tmp_path / "a.png")[0] == orientation
    assert np.array_equal(upright(picture(), orientation), expected)


def test_a_damaged_exif_block_counts_as_none(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), 6, 28)
    content = bytearray((tmp_path / "a.jpg").read_bytes())
    start = content.index(b"Exif") + 6
    for seed in range(40):
        content[start : start + 60] = np.random.default_rng(seed).bytes(60)
        (tmp_path / "b.jpg").write_bytes(content)
        assert read_exif(tmp_path / "b.jpg")[0] in range(1, 9)


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


@pytest.mark.parametrize("name", ["clip.avi", "http:/clip.avi", "concat:a|b.avi", "a%03d.avi", "-i.avi"])
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


NO_VIDEOS = {
    "empty.mp4": b"",
    "list.m3u8": b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1,\nclip.avi\n#EXT-X-ENDLIST\n",
    "list.mp4": b"ffconcat version 1.0\nfile clip.avi\n",
    "call.sdp": b"v=0\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
    "picture.png": cv2.imencode(".png", np.zeros((9, 9, 3), np.uint8))[1].tobytes(),
    "damaged.avi": b"RIFF" + b"\xff" * 4 + b"AVI LIST" + b"\xff" * 500,
}


@pytest.mark.parametrize("name", NO_VIDEOS)
def test_what_is_no_video_is_refused_and_the_library_sees_containers_only(clip, monkeypatch, name):
    clip.with_name(name).write_bytes(NO_VIDEOS[name])
    if name != "damaged.avi":
        monkeypatch.setattr(cv2, "VideoCapture", lambda *given: pytest.fail(f"{given} was opened"))
    with pytest.raises(UserError, match="is not a video that OpenCV can decode"):
        find_images(clip.with_name(name))

"""Photographs and frames of videos are taken upright, whole and sharp."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from noise_pictures import picture, save_with_exif
from PIL import Image, ImageOps

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
        damaged = content.copy()
        damaged[start : start + 60] = np.random.default_rng(seed).bytes(60)
        (tmp_path / "b.jpg").write_bytes(damaged)
        orientation, _ = read_exif(tmp_path / "b.jpg")
        assert orientation in range(1, 9)


def copied(folder, paths):
    with Bar("", len(paths)) as bar:
        return [Frame(**frame) for frame in copy_images(paths, folder / "out", bar)]


def test_photographs_are_copied_as_they_are_or_turned_upright(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), focal=28)
    save_with_exif(tmp_path / "b.png", picture(seed=1), orientation=6)
    plain, turned = copied(tmp_path, [tmp_path / "a.jpg", tmp_path / "b.png"])
    assert (tmp_path / "out" / plain.name).read_bytes() == (tmp_path / "a.jpg").read_bytes()
    assert np.array_equal(read_image(tmp_path / "out" / turned.name), np.rot90(picture(seed=1), -1))
    assert (turned.width, turned.height) == (20, 30)
    assert plain.focal == pytest.approx(28 / 43.2666 * np.hypot(30, 20), rel=1e-5)


def test_large_deep_and_transparent_photographs_become_plain_ones(tmp_path):
    write_image(tmp_path / "large.png", np.full((10, 2 * MAX_SIDE, 3), 7, np.uint8))
    cv2.imwrite(str(tmp_path / "deep.png"), np.full((9, 8, 3), 257 * 50, np.uint16))
    cv2.imwrite(str(tmp_path / "clear.png"), np.full((9, 8, 4), 60, np.uint8))
    frames = copied(tmp_path, [tmp_path / name for name in ("large.png", "deep.png", "clear.png")])
    assert (frames[0].width, frames[0].height) == (MAX_SIDE, 5)
    for frame, value in zip(frames, (7, 50, 60), strict=True):
        pixels = read_image(tmp_path / "out" / frame.name)
        assert pixels.dtype == np.uint8
        assert pixels.shape[2] == 3
        assert (pixels == value).all()


def test_webp_is_copied_as_png(tmp_path):
    Image.fromarray(picture()).save(tmp_path / "a.webp", lossless=True)
    (frame,) = copied(tmp_path, [tmp_path / "a.webp"])
    assert frame.name.endswith(".png") and np.array_equal(read_image(tmp_path / "out" / frame.name), picture())


def write_video(path, frames):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, frames[0].shape[1::-1])
    for frame in frames:
        writer.write(frame)
    writer.release()


@pytest.fixture
def clip(tmp_path):
    """24 frames, blurred but for 3, 10, 12 and 23; the brightness of the corner tells which is which."""
    base = cv2.resize(picture(60, 80, 5), (320, 240), interpolation=cv2.INTER_NEAREST)
    frames = []
    for number in range(24):
        frame = base.copy() if number in (3, 10, 12, 23) else cv2.GaussianBlur(base, (0, 0), 4)
        frame[:40, :40] = 10 * number
        frames.append(frame)
    write_video(tmp_path / "clip.avi", frames)
    return tmp_path / "clip.avi"


def test_the_sharpest_frame_of_each_interval_is_taken(clip, tmp_path):
    with Bar("", None) as bar:
        frames = [Frame(**frame) for frame in copy_video(clip, 4, tmp_path / "out", bar)]
    assert [frame.source for frame in frames] == ["frame 3", "frame 10", "frame 12", "frame 23"]
    corners = [read_image(tmp_path / "out" / frame.name)[10:30, 10:30].mean() for frame in frames]
    assert np.allclose(corners, [30, 100, 120, 230], atol=3)


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"RIFF" + b"\xff" * 500 + b"AVI LIST"])
def test_what_is_no_video_is_refused(tmp_path, content):
    (tmp_path / "x.mp4").write_bytes(content)
    with pytest.raises(UserError, match="is not a video that OpenCV can decode"):
        find_images(tmp_path / "x.mp4")


@pytest.mark.parametrize(
    "name", ["http:/clip.avi", "12:30.avi", "concat:a|b.avi", "rtsp:/a/b.avi", "a%03d.avi", "-i.avi"]
)
def test_a_local_name_is_never_taken_for_an_address_or_a_pattern(clip, tmp_path, monkeypatch, name):
    asked = []
    library = cv2.VideoCapture
    monkeypatch.setattr(cv2, "VideoCapture", lambda given, *more: asked.append(given) or library(given, *more))
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    clip.rename(path)
    assert find_images(path) == [path]
    with Bar("", None) as bar:
        assert len(copy_video(path, 4, tmp_path / "out", bar)) == 4
    assert set(asked) == {str(tmp_path / name)}


NO_VIDEOS = {
    "list.m3u8": b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1,\nclip.avi\n#EXT-X-ENDLIST\n",
    "list.mp4": b"ffconcat version 1.0\nfile clip.avi\n",
    "call.sdp": b"v=0\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
    "picture.png": cv2.imencode(".png", np.zeros((9, 9, 3), np.uint8))[1].tobytes(),
}


@pytest.mark.parametrize("name", NO_VIDEOS)
def test_what_is_no_container_does_not_reach_the_video_library(clip, tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(NO_VIDEOS[name])
    monkeypatch.setattr(cv2, "VideoCapture", lambda *given: pytest.fail(f"{given} was opened"))
    with pytest.raises(UserError, match="is not a video that OpenCV can decode"):
        find_images(tmp_path / name)

"""A video is whole, or it is not there."""

import importlib.util
import resource

import cv2
import numpy as np
import pytest

from data.errors import UserError
from models.results.videos import FFMPEG_PACKAGE, H264, VP9, write_video


@pytest.fixture
def frames():
    return [np.random.default_rng(seed).integers(0, 255, (60, 80, 3), dtype=np.uint8) for seed in range(40)]


CODECS = [VP9, *([H264] if importlib.util.find_spec(FFMPEG_PACKAGE) else [])]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_has_every_frame(tmp_path, frames, codec):
    frames = [frame[:59, :79] for frame in frames]  # odd sizes
    assert write_video(tmp_path / "a.mp4", iter(frames), 24.0, codec) == codec
    assert cv2.VideoCapture(str(tmp_path / "a.mp4")).get(cv2.CAP_PROP_FRAME_COUNT) == len(frames)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("share", [0.0, 0.99])
def test_a_full_disk_is_told_and_what_was_there_stays(tmp_path, frames, share, codec):
    write_video(tmp_path / "a.mp4", frames, 24.0, codec)
    size = (tmp_path / "a.mp4").stat().st_size
    (tmp_path / "a.mp4").write_bytes(b"of an earlier run")
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * size), hard))  # writing fails there, as on a full disk
    try:
        with pytest.raises(UserError, match="a.mp4 cannot be written") as caught:
            write_video(tmp_path / "a.mp4", frames, 24.0, codec)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.mp4": b"of an earlier run"}

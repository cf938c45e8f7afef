"""The size of a picture from its header, undecoded."""

import struct

import numpy as np
import pytest

from data.io.images import ImageError, image_size, write_image


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_the_size_is_known_from_the_header_alone(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write_image(path, np.zeros((30, 41, 3), np.uint8))
    assert image_size(path) == (41, 30)
    path.write_bytes(path.read_bytes()[:-30])  # what follows is not looked at
    assert image_size(path) == (41, 30)


def test_the_size_of_a_jpeg_is_found_behind_any_amount_of_metadata(tmp_path):
    write_image(tmp_path / "a.jpg", np.zeros((30, 41, 3), np.uint8))
    content = (tmp_path / "a.jpg").read_bytes()
    comment = b"\xff\xfe" + struct.pack(">H", 65535) + b"\xff" * 65533
    (tmp_path / "a.jpg").write_bytes(content[:2] + 3 * comment + content[2:])
    assert image_size(tmp_path / "a.jpg") == (41, 30)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither PNG nor JPEG"),
        (b"hello", "neither PNG nor JPEG"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "truncated"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "truncated"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + struct.pack(">II", 0, 5), "truncated or damaged"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + struct.pack(">II", 2**31, 2**31), "beyond the limit"),
    ],
)
def test_a_file_without_a_usable_size_is_named(tmp_path, content, reason):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ImageError, match=f"a.png.*{reason}"):
        image_size(tmp_path / "a.png")

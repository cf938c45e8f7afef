"""The size of a picture from its header, undecoded."""

import struct

import numpy as np
import pytest
from PIL import Image

from data.io.images import ImageError, image_size, list_images, read_image, write_image


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


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("quality", [90, 101], ids=["lossy", "lossless"])
def test_webp_is_read(tmp_path, quality, alpha):
    pixels = np.full((30, 41, 4), 255, np.uint8)
    pixels[..., :3] = np.linspace(20, 220, 41)[:, None] * (1.0, 0.7, 0.4)
    pixels[5:15, :, 3] = 0 if alpha else 255
    Image.fromarray(pixels if alpha else pixels[..., :3]).save(
        tmp_path / "a.webp", quality=min(quality, 100), lossless=quality > 100, exact=True
    )
    assert image_size(tmp_path / "a.webp") == (41, 30) and list_images(tmp_path) == [tmp_path / "a.webp"]
    found = read_image(tmp_path / "a.webp")
    assert found.shape == (30, 41, 4 if alpha else 3) and found.dtype == np.uint8
    assert np.abs(found.astype(int) - pixels[..., : found.shape[2]]).max() <= (0 if quality > 100 else 12)
    content = (tmp_path / "a.webp").read_bytes()
    for end in range(0, len(content) - 1, 7):
        (tmp_path / "a.webp").write_bytes(content[:end])
        with pytest.raises(ImageError, match="a.webp: (cannot be decoded|its content is neither)"):
            read_image(tmp_path / "a.webp")


def test_an_animated_webp_is_refused(tmp_path):
    frames = [Image.new("RGB", (20, 10), (shade, 0, 0)) for shade in (0, 200)]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:])
    with pytest.raises(ImageError, match="a.webp: is an animation"):
        read_image(tmp_path / "a.webp")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither PNG, JPEG nor WebP"),
        (b"hello", "neither PNG, JPEG nor WebP"),
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

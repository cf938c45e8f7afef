"""Image files: depth, order of the channels, damage, and the way back to eight bits."""

import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from data.io.headers import ImageError
from data.io.images import alpha_of, image_size, list_images, mask_of, over_background, read_image, rgb_of, write_image
from data.pixels import sample_bilinear, to_float, to_uint8


def png(width, height, depth, colour_type, rows, *chunks):
    """A PNG put together by hand, so that what is in it does not depend on any encoder."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))
    middle = b"".join(chunk(kind, body) for kind, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + header + middle + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PALETTE = (b"PLTE", b"\x01\x02\x03\x04\x05\x06")


@pytest.mark.parametrize(
    ("content", "dtype", "expected"),
    [
        (png(2, 1, 8, 0, b"\x00\x07\x09"), np.uint8, [[[7], [9]]]),
        (png(8, 1, 1, 0, b"\x00\xa0"), np.uint8, [[[255], [0], [255], [0], [0], [0], [0], [0]]]),
        (png(1, 1, 8, 6, b"\x00\x01\x02\x03\x04"), np.uint8, [[[1, 2, 3, 4]]]),
        (png(1, 1, 8, 4, b"\x00\x05\x80"), np.uint8, [[[5, 5, 5, 128]]]),
        (png(2, 1, 8, 3, b"\x00\x01\x00", PALETTE), np.uint8, [[[4, 5, 6], [1, 2, 3]]]),
        (png(1, 1, 16, 0, b"\x00\x12\x34"), np.uint16, [[[0x1234]]]),
        (png(1, 1, 16, 6, b"\x00\x01\x02\x03\x04\x05\x06\xff\xfe"), np.uint16, [[[0x0102, 0x0304, 0x0506, 0xFFFE]]]),
    ],
)
def test_samples_come_as_stored_in_rgb_order(tmp_path, content, dtype, expected):
    (tmp_path / "a.PnG").write_bytes(content)
    found = read_image(tmp_path / "a.PnG")
    assert found.dtype == dtype
    assert found.tolist() == expected


def test_the_orientation_tag_of_a_camera_is_not_applied(tmp_path):
    plain = cv2.imencode(".jpg", np.full((8, 24), 90, np.uint8))[1].tobytes()
    tag = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    (tmp_path / "a.jpg").write_bytes(plain[:2] + b"\xff\xe1" + struct.pack(">H", len(tag) + 2) + tag + plain[2:])
    assert cv2.imread(str(tmp_path / "a.jpg")).shape[:2] == (24, 8)  # the tag is there
    assert read_image(tmp_path / "a.jpg").shape[:2] == (8, 24)


NOISE = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
GOOD_PNG = cv2.imencode(".png", NOISE)[1].tobytes()
GOOD_JPEG = cv2.imencode(".jpg", NOISE)[1].tobytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty; copy it again"),
        (cv2.imencode(".bmp", NOISE)[1].tobytes(), "neither PNG, JPEG, WebP nor TIFF"),
        (GOOD_PNG[:12], "truncated"),
        (GOOD_PNG[: len(GOOD_PNG) // 2], "truncated"),
        (GOOD_PNG[:3000] + b"\0\0\0\0" + GOOD_PNG[3004:], "damaged"),
        (GOOD_JPEG[:100], "truncated"),
        (GOOD_JPEG[: len(GOOD_JPEG) // 2], "truncated"),
        (png(60000, 60000, 8, 0, b"\0"), "limit"),
        (GOOD_JPEG.replace(bytes.fromhex("11 08 003c 0050"), bytes.fromhex("11 08 ffdc ffdc")), "65500x65500"),
        (png(0, 5, 8, 0, b"\0"), "decoded|damaged"),
    ],
)
def test_unusable_files_are_refused_by_name(tmp_path, content, reason):
    (tmp_path / "view 3.png").write_bytes(content)
    for read in (read_image, image_size)[: 1 + (len(content) < 100)]:  # the size is that of the header
        with pytest.raises(ImageError, match=reason) as caught:
            read(tmp_path / "view 3.png")
        assert "view 3.png" in str(caught.value) and "\n" not in str(caught.value)


def test_missing_files_and_folders_are_user_errors(tmp_path):
    for path in (tmp_path / "none.png", tmp_path):
        with pytest.raises(ImageError, match="cannot be read"):
            read_image(path)
    with pytest.raises(ImageError, match="cannot be listed"):
        list_images(tmp_path / "none")


def test_names_are_sorted_as_people_count(tmp_path):
    names = ["10.png", "2.PNG", "1.jpg", "a10b2.JPEG", "a2b10.jpeg", "a2b9.jpeg", "B1.png", "01.jpg"]
    for name in [*names, "notes.txt", "._1.png", "3.bmp"]:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "4.png").mkdir()
    found = [path.name for path in list_images(tmp_path)]
    assert found == ["01.jpg", "1.jpg", "2.PNG", "10.png", "a2b9.jpeg", "a2b10.jpeg", "a10b2.JPEG", "B1.png"]


def test_png_gives_back_what_was_written(tmp_path):
    for picture in (NOISE[..., 0], NOISE):
        write_image(tmp_path / "a.png", picture)
        np.testing.assert_array_equal(read_image(tmp_path / "a.png").reshape(picture.shape), picture)
    with pytest.raises(ImageError, match="a.png"):
        write_image(tmp_path / "a.png/b.png", NOISE)


def test_bilinear_sampling_reproduces_a_plane_and_eight_bits_survive():
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(to_uint8(to_float(levels)), levels)
    y, x = np.mgrid[:5, :7]
    plane = (20 * x + 7 * y).astype(np.uint8)
    points = np.random.default_rng(0).uniform([0, 0], [6, 4], size=(50, 2))
    expected = (points @ [20, 7]) / 255
    np.testing.assert_allclose(sample_bilinear(plane, points), expected, atol=1e-6)
    np.testing.assert_allclose(sample_bilinear(np.dstack([plane] * 3), points)[:, 2], expected, atol=1e-6)
    ends = sample_bilinear(plane, np.array([[99.0, -5], [6, 4]]))
    np.testing.assert_array_equal(ends, plane[[0, 4], 6] / np.float32(255))


def stored(folder, picture):
    """What is read of a picture that OpenCV has written."""
    (folder / "a.png").write_bytes(cv2.imencode(".png", picture)[1].tobytes())
    return read_image(folder / "a.png")


def test_grey_is_spread_over_the_channels_and_alpha_is_kept_apart(tmp_path):
    pictures = (NOISE[..., 0], NOISE, np.dstack([NOISE, NOISE[..., 0]]))
    grey, opaque, clear = (stored(tmp_path, picture) for picture in pictures)
    np.testing.assert_array_equal(rgb_of(grey), NOISE[..., :1].repeat(3, axis=2))
    np.testing.assert_array_equal(rgb_of(clear), rgb_of(opaque))
    assert alpha_of(grey) is None and alpha_of(opaque) is None
    np.testing.assert_array_equal(alpha_of(clear), NOISE[..., 0])


@pytest.mark.parametrize(("kind", "background"), [(np.uint8, 1.0), (np.uint16, 0.25)])
def test_a_transparent_picture_lies_over_the_background_in_proportion(kind, background):
    most = np.iinfo(kind).max
    rgb = np.array([[[0, most, most // 3]]], kind).repeat(3, axis=1)
    alpha = np.array([[0, 255, 51]], np.uint8)
    seen = over_background(rgb, alpha, background) / most
    share = alpha[..., None] / 255
    np.testing.assert_allclose(seen, rgb / most * share + background * (1 - share), atol=0.51 / most)
    assert over_background(rgb, alpha, background).dtype == kind


DISC = (np.hypot(*np.mgrid[-6:6, -8:8]) < 5).astype(np.uint8)


def test_a_mask_is_the_same_however_it_is_stored(tmp_path):
    for picture in (
        DISC * 255,
        np.dstack([DISC * 0, DISC * 0, DISC * 255]),
        np.dstack([DISC * 255] * 3 + [DISC * 0 + 255]),
        np.dstack([DISC * 0 + 255] * 3 + [DISC * 255]),
        DISC.astype(np.uint16) * 65535,
    ):
        mask = mask_of(stored(tmp_path, picture))
        assert mask.dtype == np.uint8
        np.testing.assert_array_equal(mask, DISC * 255)


# the size, from the header alone


def test_the_size_is_known_from_the_header_behind_any_amount_of_metadata(tmp_path):
    comment = b"\xff\xfe" + struct.pack(">H", 65535) + b"\xff" * 65533
    for content in (GOOD_PNG, GOOD_JPEG, GOOD_JPEG[:2] + 3 * comment + GOOD_JPEG[2:]):
        (tmp_path / "a.jpg").write_bytes(content[:-30])  # what follows is not looked at
        assert image_size(tmp_path / "a.jpg") == (80, 60)


@pytest.mark.parametrize(("quality", "alpha"), [(90, False), (101, True)], ids=["lossy", "lossless"])
def test_webp_is_read(tmp_path, quality, alpha):
    pixels = np.full((30, 41, 4), 255, np.uint8)
    pixels[..., :3] = np.linspace(20, 220, 41)[:, None] * (1.0, 0.7, 0.4)
    pixels[5:15, :, 3] = 0 if alpha else 255
    options = {"quality": min(quality, 100), "lossless": quality > 100, "exact": True}
    Image.fromarray(pixels if alpha else pixels[..., :3]).save(tmp_path / "a.webp", **options)
    assert image_size(tmp_path / "a.webp") == (41, 30) and list_images(tmp_path) == [tmp_path / "a.webp"]
    found = read_image(tmp_path / "a.webp")
    assert found.shape == (30, 41, 4 if alpha else 3) and found.dtype == np.uint8
    assert np.abs(found.astype(int) - pixels[..., : found.shape[2]]).max() <= (0 if quality > 100 else 12)
    (tmp_path / "a.webp").write_bytes((tmp_path / "a.webp").read_bytes()[:-2])
    with pytest.raises(ImageError, match="a.webp: cannot be decoded"):
        read_image(tmp_path / "a.webp")


def test_an_animated_webp_is_refused(tmp_path):
    frames = [Image.new("RGB", (20, 10), (shade, 0, 0)) for shade in (0, 200)]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:])
    with pytest.raises(ImageError, match="a.webp: is an animation"):
        read_image(tmp_path / "a.webp")

"""Colours of photographs with a profile are read as sRGB; HDR videos are named."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageCms
from rendered_photographs import picture

from data.io.images import read_image
from data.prepare.frames import Frame, copy_images, remarks
from data.prepare.sources import hdr_note, profile_note
from data.prepare.steps import Bar

# XYZ of red, green and blue for D50.
ADOBE = (0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457)
PROPHOTO = (0.79767, 0.28804, 0.0), (0.13519, 0.71188, 0.0), (0.03134, 0.00009, 0.82491)


def profile_of_gamma(gamma, primaries=ADOBE):
    """An ICC profile: matrix and curve (ICC.1:2001-04)."""

    def xyz(values):
        return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(value * 65536)) for value in values)

    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))
    name = b"desc\0\0\0\0" + struct.pack(">I", 5) + b"Wide\0" + b"\0" * 78
    tags = {b"desc": name, b"cprt": b"text\0\0\0\0none\0", b"wtpt": xyz((0.9642, 1, 0.8249))}
    tags |= {key: xyz(values) for key, values in zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries, strict=True)}
    tags |= {b"rTRC": curve, b"gTRC": curve, b"bTRC": curve}
    start, table, body = 132 + 12 * len(tags), b"", b""
    for key, value in tags.items():
        padded = value + b"\0" * (-len(value) % 4)
        table += key + struct.pack(">II", start + len(body), len(value))
        body += padded
    head = struct.pack(
        ">I4sI4s4s4s6H", start + len(body), b"none", 0x02400000, b"mntr", b"RGB ", b"XYZ ", 2024, *[1] * 2, 0, 0, 0
    )
    head += b"acsp" + b"\0" * 28 + struct.pack(">3i", 63190, 65536, 54061)
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


WIDE = profile_of_gamma(563 / 256)


def in_wide(profile=WIDE):
    """Colours that sRGB has, and the same in the profile."""
    srgb = np.clip(picture(40, 60, 3), 60, 200)
    given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    return srgb, ImageCms.profileToProfile(Image.fromarray(srgb), ImageCms.createProfile("sRGB"), given)


@pytest.mark.parametrize(
    ("kind", "profile"), [("png", WIDE), ("tif", WIDE), ("webp", WIDE), ("png", profile_of_gamma(1.8, PROPHOTO))]
)
def test_colours_of_a_profile_are_read_as_srgb(tmp_path, kind, profile):
    srgb, wide = in_wide(profile)
    path = tmp_path / f"a.{kind}"
    wide.save(path, icc_profile=profile, **({"lossless": True} if kind == "webp" else {}))
    assert np.abs(np.asarray(wide).astype(int) - srgb).mean() > 4
    assert np.abs(read_image(path).astype(int) - srgb).mean() < 1
    with Bar("", 1) as bar:
        (frame,) = copy_images([path], tmp_path / "out", bar)
    assert frame["name"] == "0000.png" and remarks([Frame(**frame)]) == [
        "1 of 1 photographs: colour profile Wide, converted to sRGB"
    ]
    assert np.abs(read_image(tmp_path / "out" / "0000.png").astype(int) - srgb).mean() < 1


def test_an_srgb_profile_changes_nothing(tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for name, given in (("a.png", profile), ("b.png", b"damaged")):
        Image.fromarray(picture()).save(tmp_path / name, icc_profile=given)
    assert np.array_equal(read_image(tmp_path / "a.png"), picture()) and np.array_equal(
        read_image(tmp_path / "b.png"), picture()
    )


def cmyk_profile():
    """An ICC profile of CMYK: a table of the 16 corners, black with any ink (lut8Type of ICC.1:2001-04)."""
    corners = np.zeros((16, 3), np.uint8) + [0, 128, 128]
    corners[0, 0] = 255
    identity = bytes(range(256))
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + struct.pack(">9i", *(65536 * np.eye(3, dtype=int)).ravel())
    table += 4 * identity + corners.astype(np.uint8).tobytes() + 3 * identity
    name = b"desc\0\0\0\0" + struct.pack(">I", 4) + b"Ink\0" + b"\0" * 79
    head = struct.pack(">I4sI4s4s4s", 132 + 24 + len(name) + len(table), b"none", 0x02400000, b"prtr", b"CMYK", b"Lab ")
    head += struct.pack(">6H", 2024, 1, 1, 0, 0, 0) + b"acsp" + b"\0" * 28 + struct.pack(">3i", 63190, 65536, 54061)
    tags = struct.pack(">I4sII", 2, b"desc", 156, len(name)) + struct.pack(
        ">4sII", b"A2B0", 156 + len(name), len(table)
    )
    return head.ljust(128, b"\0") + tags + name + table


def test_cmyk_is_converted_by_its_profile_or_reported(tmp_path):
    inks = np.zeros((32, 48, 4), np.uint8)
    inks[:16, :, 1] = 255
    for name, options in (("a.jpg", {"icc_profile": cmyk_profile()}), ("b.jpg", {}), ("c.tif", {})):
        Image.fromarray(inks, "CMYK").save(tmp_path / name, **options)
    top, bottom = read_image(tmp_path / "a.jpg")[[4, 28], 9]
    assert top.max() < 10 and bottom.min() > 245, "magenta is black in this profile"
    assert "colour profile Ink" in profile_note(tmp_path / "a.jpg")
    for name in ("b.jpg", "c.tif"):
        top, bottom = read_image(tmp_path / name)[[4, 28], 9, :3]
        assert top[0] > 245 and top[1] < 10 and bottom.min() > 245
        assert profile_note(tmp_path / name).startswith("CMYK without a colour profile")


@pytest.mark.parametrize(
    ("space", "kind", "words"),
    [
        (1, None, ""),
        (65535, b"R03", "colour profile Adobe RGB, by EXIF"),
        (65535, b"R98", "no colour profile, although EXIF says that its colours are not sRGB: read as sRGB"),
    ],
)
def test_a_colour_space_of_exif_is_used_or_reported(space, kind, words, tmp_path):
    srgb, wide = in_wide()
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA001] = space
    if kind:
        exif.get_ifd(0x8769)[0xA005] = {1: kind.decode()}
    Image.fromarray(np.asarray(wide)).save(tmp_path / "a.jpg", quality=100, subsampling=0, exif=exif)
    assert profile_note(tmp_path / "a.jpg").split(" and")[0].split(", conv")[0] == words
    right = srgb if kind == b"R03" else np.asarray(wide)
    assert np.abs(read_image(tmp_path / "a.jpg").astype(int) - right).mean() < 2


def test_hdr_videos_are_named(tmp_path):
    for name, content, words in (
        ("a.mov", b"....colrnclc" + struct.pack(">3H", 9, 18, 9), ["a.mov: is HDR (HLG)"]),
        ("b.mp4", b"....colrnclx" + struct.pack(">3H", 1, 1, 1), []),
        ("c.mkv", b"....\x55\xba\x81\x10", ["c.mkv: is HDR (PQ)"]),
    ):
        (tmp_path / name).write_bytes(content)
        assert [note.split(",")[0] for note in hdr_note(tmp_path / name)] == words

"""What lies among the photographs and is not taken is named; what is wrong with a disk is not blamed on them."""

import errno
import os

import numpy as np
import pytest
from PIL import Image
from preparations import request
from rendered_photographs import picture

from data.errors import UserError
from data.io import files
from data.io.images import ImageError, write_image
from data.prepare import pipeline, sources
from data.prepare.frames import copy_images
from data.prepare.pipeline import prepare
from data.prepare.progress import Bar


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Three photographs, where HEIC cannot be read."""
    monkeypatch.setattr(sources, "HEIC_PACKAGE", "no_such_package")
    (tmp_path / "photos").mkdir()
    for index in range(3):
        write_image(tmp_path / "photos" / f"{index}.png", picture())
    return tmp_path / "photos"


def test_each_kind_that_is_left_out_is_named(photos, tmp_path, monkeypatch):
    (photos / "more").mkdir()
    (photos / "empty").mkdir()
    for name in ("IMG_2.HEIC", "IMG_1.heic", "b.gif", "c.TIFF", "notes.txt", ".hidden.gif", "more/d.JPG"):
        (photos / name).write_bytes(b"x")
    (photos / "gone.jpg").symlink_to("nowhere.jpg")
    (photos / "loop.png").symlink_to("loop.png")
    os.mkfifo(photos / "pipe.jpg")
    assert [path.name for path in sources.find_images(photos)] == ["0.png", "1.png", "2.png"]
    expected = [
        "IMG_1.heic and IMG_2.HEIC: HEIC, left out; run `pip install -r requirements-heic.txt`",
        "b.gif and c.TIFF: left out, neither PNG, JPEG nor WebP",
        "gone.jpg, loop.png and pipe.jpg: left out, a broken link",
        "more: left out, photographs in subfolders",
    ]
    said = []
    monkeypatch.setattr(pipeline, "copy_images", None)  # what comes after is another test's
    with pytest.raises(TypeError):
        prepare(request(tmp_path), said.append)
    for notes in (sources.left_out(photos), said[:4]):
        assert [note[: len(start)] for note, start in zip(notes, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2024/a.jpg", r"its photographs are in subfolders \(2024\); give one of them"),
        ("a.gif", "holds no PNG, JPEG or WebP; a.gif: left out"),
        ("a.heic", "holds no PNG, JPEG or WebP; a.heic: HEIC, left out; run `pip install -r requirements-heic.txt`"),
        ("a.txt", "holds no .png, .jpg, .jpeg or .webp photographs"),
    ],
)
def test_a_folder_without_photographs_says_why(photos, tmp_path, name, words):
    (tmp_path / "other" / name).parent.mkdir(parents=True)
    (tmp_path / "other" / name).write_bytes(b"x")
    with pytest.raises(UserError, match=words):
        sources.find_images(tmp_path / "other")


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


@pytest.mark.parametrize("content", [b"", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\xff" * 200])
def test_a_damaged_heic_is_a_sentence(tmp_path, content):
    (tmp_path / "a.heic").write_bytes(content)
    with pytest.raises(ImageError, match="a.heic: cannot be decoded"):
        sources.read_source_image(tmp_path / "a.heic")


def test_a_full_disk_is_not_blamed_on_the_photograph(photos, tmp_path, monkeypatch):
    def refuse(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_atomically", refuse)
    with pytest.raises(UserError, match="scene/prepare/.*No space left on device") as caught, Bar("", 3) as bar:
        copy_images(sources.find_images(photos), tmp_path / "scene" / "prepare", bar)
    assert str(photos) not in str(caught.value)

"""Photographs and masks as other programs leave them: read, or told in one sentence."""

import struct

import cv2
import numpy as np
import pytest
from foreign_files import transforms
from PIL import Image
from scene_writers import make_views, write_realitycapture
from synthetic_scene import NAMES, dataset_config, photographs, read

from data.errors import UserError
from data.io.images import image_size, read_image, write_image
from data.scenes.preprocess import preprocess
from data.scenes.readers import READERS, recognise


def test_an_exif_orientation_is_told_once(tmp_path):
    names = [name.replace(".png", ".jpg") for name in NAMES]
    posed = photographs(tmp_path, names)
    transforms(tmp_path, posed, [f"images/{name}" for name in names])
    for number, (name, image) in enumerate(zip(names, posed, strict=True)):
        exif = Image.Exif()
        exif[0x0112] = 6 if number < 2 else 1
        Image.fromarray(read_image(image.path)[..., :3]).save(tmp_path / "images" / name, exif=exif)
    told = [note for note in read(tmp_path)[1].notes if "EXIF" in note]
    assert len(told) == 1 and told[0].startswith(f"2 photographs ({names[0]} and {names[1]}) have an EXIF orientation")


def test_masks_of_some_frames(tmp_path):
    posed = photographs(tmp_path, NAMES)
    (tmp_path / "masks").mkdir()
    for name, image in zip(NAMES[:8], posed, strict=False):
        write_image(tmp_path / "masks" / name, read_image(image.mask_path)[..., 0])
    own = [f"images/{name}" for name in NAMES]
    transforms(
        tmp_path, posed, own, lambda name: {} if name in own[8:] else {"mask_path": name.replace("images", "masks")}
    )
    parsed, scene = read(tmp_path)
    assert sum("2 of 10 frames have no mask_path and count as unmasked" in note for note in parsed.notes) == 1
    assert [bool(mask.min()) for mask in scene.masks] == [False] * 8 + [True] * 2


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
def test_photographs_in_tiff(depth, tmp_path):
    names = [name.replace(".png", ".TIF") for name in NAMES]
    posed = photographs(tmp_path, names)
    transforms(tmp_path, posed, [f"images/{name}" for name in names])
    pixels = []
    for name, image in zip(names, posed, strict=True):
        pixels.append(read_image(image.path)[..., :3].astype(depth) * (257 if depth is np.uint16 else 1))
        encoded = cv2.imencode(".tiff", cv2.cvtColor(pixels[-1], cv2.COLOR_RGB2BGR))[1]
        (tmp_path / "images" / name).write_bytes(encoded.tobytes())
    assert image_size(tmp_path / "images" / names[0]) == (200, 200)
    scene = read(tmp_path, masks_from_backdrop=False)[1]
    assert all((one == two).all() for one, two in zip(scene.images, pixels, strict=True))


def test_raw_photographs_are_named(tmp_path):
    names = [name.replace(".png", ".dng") for name in NAMES]
    posed = photographs(tmp_path, names)
    transforms(tmp_path, posed, [f"images/{name}" for name in names])
    for name in names:
        (tmp_path / "images" / name).write_bytes(cv2.imencode(".tiff", np.zeros((9, 9, 3), np.uint8))[1].tobytes())
    with pytest.raises(UserError, match=r"DJI_0 \(400\)\.dng: is a raw photograph \(DNG"):
        read(tmp_path)


def test_capital_suffixes_of_realitycapture(tmp_path):
    write_realitycapture(tmp_path, make_views())
    right = READERS["realitycapture"].read(tmp_path, None)
    for path in sorted((tmp_path / "images").glob("*.xmp")):
        path.rename(path.with_suffix(".XMP"))
    assert recognise(tmp_path) == "realitycapture"
    found = READERS["realitycapture"].read(tmp_path, None)
    assert all((one.c2w == two.c2w).all() for one, two in zip(found.images, right.images, strict=True))


def patched(path, **tags):
    """Change the first value of tags (`t338=1`) in the only directory of a TIFF file."""
    content = bytearray(path.read_bytes())
    (at,) = struct.unpack_from("<I", content, 4)
    for entry in range(at + 2, at + 2 + 12 * struct.unpack_from("<H", content, at)[0], 12):
        tag, _, count = struct.unpack_from("<HHI", content, entry)
        place = entry + 8 if count < 3 else struct.unpack_from("<I", content, entry + 8)[0]
        struct.pack_into("<H", content, place, tags.get(f"t{tag}", struct.unpack_from("<H", content, place)[0]))
    path.write_bytes(content)


@pytest.mark.parametrize(("kind", "color"), [(1, (100, 50, 0, 128)), (2, (200, 100, 0, 128))])
def test_alpha_channels_of_tiff_are_straight(kind, color, tmp_path):
    Image.fromarray(np.tile(np.uint8(color), (4, 4, 1))).save(tmp_path / "a.tif")
    patched(tmp_path / "a.tif", t338=kind)
    assert np.abs(read_image(tmp_path / "a.tif")[0, 0].astype(int) - [200, 100, 0, 128]).max() <= 1


def test_the_largest_page_of_a_tiff_is_read(tmp_path):
    large = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    pages = [Image.fromarray(page) for page in (large[::4, ::4], large, large[::2, ::2])]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert image_size(tmp_path / "a.tif") == (60, 40) and (read_image(tmp_path / "a.tif") == large).all()


@pytest.mark.parametrize(
    ("mode", "options", "tags", "words"),
    [
        ("F", {}, {}, "floats or signed integers of 32 bits"),
        ("RGB", {"big_tiff": True}, {}, "is a BigTIFF"),
        ("LA", {}, {}, "is grey with an alpha channel"),
        ("RGB", {}, {"t258": 16, "t284": 2}, r"\(planar\); save it interleaved"),
    ],
)
def test_tiff_files_that_opencv_misreads_are_refused(mode, options, tags, words, tmp_path):
    Image.new(mode, (8, 8)).save(tmp_path / "a.tif", **options)
    if tags:
        patched(tmp_path / "a.tif", **tags)
    with pytest.raises(UserError, match=words):
        image_size(tmp_path / "a.tif")


def with_alpha(folder, posed, opaque=0, is_multiplied=False):
    """The photographs with soft masks as alpha channels, the first `opaque` with one that is white."""
    for number, image in enumerate(posed):
        alpha = cv2.blur(read_image(image.mask_path)[..., 0], (5, 5))
        alpha = np.full_like(alpha, 255) if number < opaque else alpha
        rgb = read_image(image.path)[..., :3]
        rgb = np.rint(rgb * (alpha[..., None] / 255)).astype(np.uint8) if is_multiplied else rgb
        Image.fromarray(np.dstack([rgb, alpha])).save(folder / "images" / NAMES[number])


@pytest.mark.parametrize("is_multiplied", [False, True])
def test_premultiplied_colours_are_told(is_multiplied, tmp_path):
    posed = photographs(tmp_path, NAMES)
    with_alpha(tmp_path, posed, is_multiplied=is_multiplied)
    transforms(tmp_path, posed, [f"images/{name}" for name in NAMES])
    assert any("look multiplied by their alpha" in note for note in read(tmp_path)[1].notes) == is_multiplied


@pytest.mark.parametrize("opaque", [2, 8])
def test_held_out_views_have_masks_if_the_training_has(opaque, tmp_path):
    posed = photographs(tmp_path, NAMES)
    with_alpha(tmp_path, posed, opaque)
    transforms(tmp_path, posed, [f"images/{name}" for name in NAMES])
    parsed, _ = read(tmp_path)
    conf = dataset_config(tmp_path, masks_from_backdrop=False)
    for first, second in ((slice(0, opaque), slice(opaque, 10)), (slice(opaque, 10), slice(0, opaque))):
        training = preprocess(parsed, parsed.images[first], conf)
        held_out = preprocess(parsed, parsed.images[second], conf, training=training)
        assert (training.masks is None) == (held_out.masks is None) == (first.start == 0)

"""Photographs and masks as other programs leave them: read, or told in one sentence."""

import json

import cv2
import numpy as np
import pytest
from PIL import Image
from scene_writers import make_views, write_realitycapture
from synthetic_scene import NAMES, photographs, read

from data.errors import UserError
from data.io.images import image_size, read_image, write_image
from data.readers import READERS
from data.readers.detect import recognise

OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])


def transforms(folder, posed, names, own=lambda name: {}):
    """transforms.json with the true cameras."""
    (fx, _, cx), (_, fy, cy), _ = posed[0].lens.intrinsics.tolist()
    frames = [
        {"file_path": f"images/{name}", "transform_matrix": (image.c2w @ OPENGL).tolist(), **own(name)}
        for name, image in zip(names, posed, strict=True)
    ]
    lens = {"fl_x": fx, "fl_y": fy, "cx": cx + 0.5, "cy": cy + 0.5, "w": 200, "h": 200}
    (folder / "transforms.json").write_text(json.dumps({**lens, "frames": frames}))


def test_an_exif_orientation_is_told_once(tmp_path):
    names = [name.replace(".png", ".jpg") for name in NAMES]
    posed = photographs(tmp_path, names)
    transforms(tmp_path, posed, names)
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
    transforms(tmp_path, posed, NAMES, lambda name: {"mask_path": f"masks/{name}"} if name in NAMES[:8] else {})
    parsed, scene = read(tmp_path)
    assert sum("2 of 10 frames have no mask_path and count as unmasked" in note for note in parsed.notes) == 1
    assert [bool(mask.min()) for mask in scene.masks] == [False] * 8 + [True] * 2


@pytest.mark.parametrize("depth", [np.uint8, np.uint16])
def test_photographs_in_tiff(depth, tmp_path):
    names = [name.replace(".png", ".TIF") for name in NAMES]
    posed = photographs(tmp_path, names)
    transforms(tmp_path, posed, names)
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
    transforms(tmp_path, posed, names)
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

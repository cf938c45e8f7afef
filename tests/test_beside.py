"""Photographs as people have them: masks and twins beside them, crops, few levels of 16 bits."""

from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image
from preparations import request
from rendered_photographs import picture

from data.errors import UserError
from data.io.colors import levels_of, small_range
from data.io.images import mask_of, read_image, write_image
from data.io.named_files import mask_files
from data.parsed_scene import Lens, ParsedScene, PosedImage, WorldFrame
from data.pixels import Levels
from data.prepare import pipeline
from data.prepare.beside import find_photographs, hides_nothing, masks_beside, masks_of
from data.prepare.frames import Frame, copy_images, groups, remarks
from data.prepare.inspection.checks import outline_offset
from data.prepare.masks import read_mask
from data.prepare.sfm.overlay import overlay_note, write_overlay
from data.prepare.sources import notes_of
from data.prepare.steps import Bar
from data.scenes.config import DatasetConfig, split
from data.scenes.preprocess import preprocess
from models.results.report.reconstruction import page

DISC = (np.hypot(*np.mgrid[-10:10, -15:15]) < 7).astype(np.uint8) * 255


def save(path, seed=0, alpha=None, **options):
    pixels = picture(seed=seed)
    Image.fromarray(pixels if alpha is None else np.dstack([pixels, alpha])).save(path, **options)


def names(paths):
    return [path.name for path in paths]


# masks and twins


@pytest.mark.parametrize(
    "name", ["{}_mask.png", "mask_{}.png", "{} mask.png", "MASK-{}.png", "{}.jpg_mask.png", "{}.png"]
)
def test_masks_of_another_folder_are_found_by_usual_names(tmp_path, name):
    for number in range(12):
        Image.fromarray(DISC).save(tmp_path / name.format(f"IMG_{number}"))
    found = mask_files(tmp_path, [f"IMG_{number}.jpg" for number in range(12)])
    assert found == [tmp_path / name.format(f"IMG_{number}") for number in range(12)]


@pytest.mark.parametrize(
    "name",
    ["{}_mask.png", "{}.jpg.mask.png", "{}.mask.png", "{}-MASK.jpg", "{}.jpg.png", "{}.png"]
    + ["mask_{}.png", "{} matte.png", "{}_masks.png", "{}m.png"],
)
def test_masks_beside_photographs_are_masks(tmp_path, name):
    for number in range(3):
        save(tmp_path / f"IMG_{number}.jpg", number)
        Image.fromarray(DISC).save(tmp_path / name.format(f"IMG_{number}"))
    found = find_photographs(tmp_path)
    assert names(found.paths) == ["IMG_0.jpg", "IMG_1.jpg", "IMG_2.jpg"]
    folder, note = masks_beside(tmp_path, found)
    assert folder == str(tmp_path) and "masks of 3 photographs, used" in note[0]
    assert names(masks_of(tmp_path, found)) == [name.format(f"IMG_{number}") for number in range(3)]


def test_masks_of_some_photographs_are_named_and_not_used(tmp_path):
    for number in range(4):
        save(tmp_path / f"{number}.jpg", number)
    Image.fromarray(DISC).save(tmp_path / "2_mask.png")
    found = find_photographs(tmp_path)
    note = "2_mask.png: masks of 1 photographs, not used, as 0.jpg, 1.jpg and 3.jpg have none"
    assert masks_beside(tmp_path, found) == ("", (note,))
    with pytest.raises(UserError, match=r"3 of 4 photographs have no mask, the first is 0\.jpg: it has no alpha"):
        masks_of(tmp_path, found)


def test_a_folder_of_masks_among_the_photographs_is_used(tmp_path):
    (tmp_path / "Masks").mkdir()
    for number in range(3):
        save(tmp_path / f"{number}.jpg", number)
        write_image(tmp_path / "Masks" / f"{number}.png", DISC)
    found = find_photographs(tmp_path)
    assert masks_beside(tmp_path, found)[0] == str(tmp_path / "Masks") and notes_of(tmp_path, found.paths) == []
    (tmp_path / "Masks" / "1.png").unlink()
    assert "not used, as 1.jpg have none" in masks_beside(tmp_path, found)[1][0]


def test_a_folder_of_masks_beside_images_is_used(tmp_path):
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    for number in range(3):
        save(tmp_path / "images" / f"{number}.jpg", number)
        write_image(tmp_path / "masks" / f"{number}.png", DISC)
    photographs = tmp_path / "images"
    assert masks_beside(photographs, find_photographs(photographs))[0] == str(tmp_path / "masks")
    others = photographs.rename(tmp_path / "summer")
    assert masks_beside(others, find_photographs(others)) == ("", ())


def test_alpha_channels_are_masks_if_most_photographs_have_transparent_pixels(tmp_path):
    for number in range(3):
        save(tmp_path / f"{number}.png", number, alpha=DISC)
    found = find_photographs(tmp_path)
    folder, note = masks_beside(tmp_path, found)
    assert folder == str(tmp_path) and note[0].startswith("alpha channels of 3 of 3 photographs")
    assert masks_of(tmp_path, found) == found.paths
    assert np.array_equal(read_mask(found.paths[0], (30, 20), found.paths[0]), DISC)
    assert not hides_nothing(found.paths)
    save(tmp_path / "0.png", 0, alpha=np.full_like(DISC, 255))  # the object fills it
    assert masks_beside(tmp_path, found)[0] == str(tmp_path) and masks_of(tmp_path, found) == found.paths
    save(tmp_path / "1.png", 1, alpha=np.full_like(DISC, 255))
    folder, note = masks_beside(tmp_path, find_photographs(tmp_path))
    assert folder == "" and note[0].startswith("alpha channels of 1 of 3") and note[0].endswith("not used as masks")


def test_how_photographs_were_read_is_on_the_page_of_results():
    frame = WorldFrame("", notes=("alpha channels of 3 of 3 photographs: used as masks",))
    assert "## Photographs\n\n- alpha channels of 3 of 3" in page("title", {}, {}, (), frame=frame)


@pytest.mark.parametrize("alpha", [np.zeros_like(DISC), np.full_like(DISC, 255)], ids=["nothing", "all but corners"])
def test_alpha_channels_that_cut_out_nothing_are_no_masks(tmp_path, alpha):
    alpha[::19, ::29] = 0
    for number in range(3):
        save(tmp_path / f"{number}.png", number, alpha=alpha)
    assert masks_beside(tmp_path, find_photographs(tmp_path)) == ("", ())


def test_cut_out_photographs_without_cameras_are_named_as_the_cause(tmp_path, monkeypatch):
    def no_cameras(*given):
        raise UserError("cameras were found for 2 of 3 photographs only; take more photographs between them")

    (tmp_path / "photos").mkdir()
    for number in range(3):
        pixels = picture(seed=number) * (DISC[..., None] > 0)
        Image.fromarray(np.dstack([pixels, DISC])).save(tmp_path / "photos" / f"{number}.png")
    monkeypatch.setattr(pipeline, "estimate_cameras", no_cameras)
    said = []
    with pytest.raises(UserError, match="for 2 of 3 photographs only; the photographs are cut out") as caught:
        pipeline.prepare(request(tmp_path), said.append)
    assert "take more" not in str(caught.value) and any("used as masks" in line for line in said)


def test_of_the_files_of_a_shot_one_is_used(tmp_path):
    for number in range(4):
        save(tmp_path / f"IMG_{number}.jpg", number)
        save(tmp_path / f"img_{number}.PNG", number)
    save(tmp_path / "IMG_3.tif", 3)
    found = find_photographs(tmp_path)
    assert names(found.paths) == [f"IMG_{number}.jpg" for number in range(4)]
    (note,) = found.notes
    assert note.startswith("5 further files of the same shots are left out: img_0.PNG, img_1.PNG")
    for number in range(4):
        Image.fromarray(picture(40, 60, number)).save(tmp_path / f"img_{number}.PNG")  # the others are previews
    assert names(find_photographs(tmp_path).paths) == [f"img_{number}.PNG" for number in range(4)]


@pytest.mark.parametrize(
    ("name", "size"),
    [("IMG_{} (1).jpg", 90), ("Copy of IMG_{}.png", 90), ("IMG_E{}.jpg", 90), ("IMG_{}-preview1.jpg", 40)],
)
def test_copies_and_previews_of_a_photograph_are_left_out(tmp_path, name, size):
    for number in range(3):
        whole = Image.fromarray(picture(4, 6, number)).resize((90, 60), Image.Resampling.BILINEAR)
        whole.save(tmp_path / f"IMG_{number}.jpg")
        whole.resize((size, 2 * size // 3), Image.Resampling.BOX).save(tmp_path / name.format(number))
    save(tmp_path / "IMG_2_2.jpg", 9)  # another one
    found = find_photographs(tmp_path)
    assert names(found.paths) == ["IMG_0.jpg", "IMG_1.jpg", "IMG_2.jpg", "IMG_2_2.jpg"]
    assert found.notes[0].startswith("3 further files of the same shots are left out")


def test_photographs_of_a_plain_object_are_no_copies_of_each_other(tmp_path):
    y, x = np.mgrid[:120, :160]
    for number in range(3):
        disc = (np.hypot(x - 80 - 4 * number, y - 60) < 45)[..., None] * np.full(3, 150, np.uint8)
        Image.fromarray(disc.astype(np.uint8)).save(tmp_path / f"{number:03d}.jpg")
        Image.fromarray(np.roll(disc, 2, axis=1).astype(np.uint8)).save(tmp_path / f"new_{number:03d}.jpg")
    found = find_photographs(tmp_path)
    assert len(found.paths) == 6 and found.notes == ()


def test_equal_photographs_under_other_names_are_used_once(tmp_path):
    for number in range(4):
        save(tmp_path / f"{number}.png", number)
    (tmp_path / "z.png").write_bytes((tmp_path / "2.png").read_bytes())
    exif = Image.Exif()
    exif[0x010E] = "a copy"
    save(tmp_path / "y.tif", 1, exif=exif)
    found = find_photographs(tmp_path)
    assert names(found.paths) == [f"{number}.png" for number in range(4)]
    assert found.notes == ("2 further files of the same shots are left out: y.tif and z.png",)


def test_a_cut_out_beside_its_photograph_is_its_mask(tmp_path):
    for number in range(3):
        save(tmp_path / f"{number}.jpg", number)
        dark = np.dstack([picture(seed=number) // 8, DISC])
        Image.fromarray(dark).save(tmp_path / f"{number}.png")
    found = find_photographs(tmp_path)
    assert names(found.paths) == ["0.jpg", "1.jpg", "2.jpg"] and len(found.masks) == 3
    assert np.array_equal(mask_of(read_image(tmp_path / "0.png")), DISC)


def test_a_twin_of_a_test_photograph_is_not_trained_on():
    images = [
        PosedImage(Path(f"a/{k // 2}{'.jpg' if k % 2 else '.png'}"), Lens(np.eye(3)), np.eye(4)) for k in range(8)
    ]
    parsed = ParsedScene("scene", Path("scene"), tuple(images))
    found = split(parsed, DatasetConfig("", "", "", test_every=4))
    assert names([image.path for image in found.test]) == ["0.png", "2.png"]
    assert names([image.path for image in found.training]) == ["1.png", "1.jpg", "3.png", "3.jpg"]


# levels, crops, watermarks, outlines


@pytest.mark.parametrize(
    ("low", "high", "levels"),
    [
        (0, 4000, Levels(0, 4095)),
        (29000, 31000, Levels(29000, 31000)),
        (0, 60000, None),
        (300, 16000, Levels(0, 16383)),
    ],
)
def test_a_small_range_of_16_bits_is_stretched_equally_in_all(tmp_path, low, high, levels):
    share = picture(60, 80).astype(float) / 255
    dark = (low + (high - low) * share / 2).astype(np.uint16)
    bright = (low + (high - low) * (share - share.min()) / np.ptp(share)).astype(np.uint16)
    for name, pixels in (("a", dark), ("b", bright)):
        cv2.imwrite(str(tmp_path / f"{name}.png"), pixels[..., ::-1])
    images = [read_image(tmp_path / name) for name in ("a.png", "b.png")]
    found = small_range(map(levels_of, images))
    assert (found is None) == (levels is None)
    with Bar("", 2) as bar:
        frames = [
            Frame(**frame) for frame in copy_images([tmp_path / "a.png", tmp_path / "b.png"], tmp_path / "out", bar)
        ]
    assert len(remarks(frames)) == (levels is not None)
    if levels is None:
        return
    assert np.allclose(found, levels, atol=0.01 * (high - low))
    for frame, image in zip(frames, images, strict=True):
        expected = 255 * (image.astype(float) - found.low) / (found.high - found.low)
        assert np.abs(read_image(tmp_path / "out" / frame.name) - np.clip(expected, 0, 255)).max() <= 0.51


def test_a_scene_of_few_levels_is_stretched_and_so_are_its_test_photographs(tmp_path):
    posed = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        cv2.imwrite(str(path), 16 * picture(40, 60, number)[..., ::-1].astype(np.uint16))
        pose = np.eye(4)
        pose[:3, 3] = 0.1 * number, 0, -3
        posed.append(PosedImage(path, Lens(np.array([[60.0, 0, 29.5], [0, 60, 19.5], [0, 0, 1]])), pose))
    frame = WorldFrame("", notes=("alpha channels of 3 of 3 photographs: used as masks",))
    parsed = ParsedScene("scene", tmp_path, tuple(posed), notes=frame.notes, frame=frame)
    conf = DatasetConfig("", "", "", roi="0 0 0 1")
    scene = preprocess(parsed, parsed.images[:2], conf)
    assert scene.levels == Levels(0, 4095) and "16 bits of which only 0 to 4095" in scene.doubts[0]
    assert len(scene.doubts) == 1 and frame.notes[0] in scene.notes, "how photographs were read is no warning"
    held_out = preprocess(parsed, parsed.images[2:], conf, training=scene)
    for view, image in ((0, scene.images[0]), (2, held_out.images[0])):
        assert np.abs(image / 65535 - picture(40, 60, view) * (16 / 4095)).max() < 1e-4


def test_cropped_photographs_are_named_and_have_cameras_of_their_own(tmp_path):
    sizes = [(60, 40), (60, 40), (50, 40), (44, 40), (40, 60)]
    frames = [Frame(f"{k}.png", f"IMG_{k}.jpg", *size, None) for k, size in enumerate(sizes)]
    (note,) = remarks(frames)
    assert note.startswith("2 of 5 photographs look cropped, by their sizes or EXIF: IMG_2.jpg and IMG_3.jpg;")
    assert remarks(frames[:3]) == []  # another camera
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA002], exif.get_ifd(0x8769)[0xA003], exif.get_ifd(0x8769)[0xA405] = 60, 40, 36
    for name in "ab":
        Image.fromarray(picture(30, 30)).save(tmp_path / f"{name}.jpg", exif=exif)
    Image.fromarray(picture(20, 30)).save(tmp_path / "c.jpg", exif=exif)  # reduced
    with Bar("", 3) as bar:
        copied = [Frame(**each) for each in copy_images([tmp_path / f"{n}.jpg" for n in "abc"], tmp_path / "out", bar)]
    assert [frame.is_cropped for frame in copied] == [True, True, False] and len(groups(copied)) == 3
    assert copied[0].focal == pytest.approx(36 / 43.2666 * np.hypot(60, 40), rel=1e-5)
    assert copied[2].focal == pytest.approx(36 / 43.2666 * np.hypot(30, 20), rel=1e-5)


def test_a_watermark_is_left_out_of_matching(tmp_path):
    paths, rng = [tmp_path / f"{number}.png" for number in range(22)], np.random.default_rng(0)
    sizes = [(320, 240) if number % 2 else (240, 320) for number in range(22)]
    for path, size in zip(paths, sizes, strict=True):
        pixels = rng.integers(0, 256, (12, 16, 3)).astype(np.uint8)
        write_image(path, cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC))
    assert not write_overlay(tmp_path, paths, sizes) and overlay_note(tmp_path) == []
    for path, (width, height) in zip(paths, sizes, strict=True):
        pixels, place = read_image(path), (width - 140, height - 20)
        marked = cv2.putText(pixels.copy(), "SAMPLE", place, cv2.FONT_HERSHEY_SIMPLEX, 1.0, (255, 255, 255), 2)
        write_image(path, cv2.addWeighted(marked, 0.7, pixels, 0.3, 0))
    assert write_overlay(tmp_path, paths, sizes)
    for path, (width, height) in zip(paths, sizes, strict=True):
        mask = read_image(tmp_path / "overlay" / f"{path.name}.png")[..., 0]
        assert (mask[: height - 60] == 0).mean() < 0.01 and (mask[:, : width - 160] == 0).mean() < 0.01
        assert (mask[height - 40 : height - 20, width - 138 : width - 20] == 0).mean() > 0.7
    assert "is equal in all photographs (x " in overlay_note(tmp_path)[0]


@pytest.mark.parametrize("wide", [0, 8])
def test_masks_that_are_wider_than_the_object_are_found(wide):
    images, masks = [], []
    for number in range(5):
        y, x = np.mgrid[:200, :260]
        inside = np.hypot(x - 130 - number, y - 100) < 60
        noise = np.random.default_rng(number).normal(0, 12, (200, 260, 3))
        images.append(np.clip(np.where(inside[..., None], 170, 90) + noise, 0, 255).astype(np.uint8))
        masks.append((np.hypot(x - 130 - number, y - 100) < 60 + wide).astype(np.uint8) * 255)
    scene = SimpleNamespace(n_views=5, images=images, masks=masks, size=lambda view: (260, 200))
    assert outline_offset(scene) == pytest.approx(wide, abs=1.0)

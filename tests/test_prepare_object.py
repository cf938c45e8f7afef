"""An object that turns before what stands still: cameras from it alone replace the others if they fit the masks."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from preparations import lines_of, read, refuse
from rendered_photographs import poses, render, textures
from test_fast_parts import ball_views

from data.errors import UserError
from data.io.images import write_image
from data.parsed_scene import Lens, PosedImage
from data.prepare import camera_steps
from data.prepare.camera_steps import FIT
from data.prepare.sfm.matches import MOSTLY, share_of_still_pairs
from data.prepare.sfm.stages import DATABASE, MASKS, MODELS, OF_OBJECT, DiskError
from data.prepare.steps import WorkError

WHOLE, OBJECT = {"names": ["whole"], "notes": []}, {"names": ["object"], "notes": []}
AGAIN = "estimated again, from what is inside the masks"


@pytest.fixture
def outcome(tmp_path, monkeypatch):
    """A function of the agreement (None: unknown; an error: no cameras) of both attempts: result, model, lines."""
    (tmp_path / MASKS).mkdir()
    (tmp_path / OF_OBJECT.database).parent.mkdir()
    (tmp_path / OF_OBJECT.database).touch()

    def run(whole, of_object, masks="key", fewer=False):
        def map_images(work, frames, source=None):
            agreement, result = (of_object, OBJECT) if source == OF_OBJECT else (whole, WHOLE)
            if isinstance(agreement, type):
                raise agreement(f"no cameras {result['names'][0]}; hint")
            (work / MODELS).mkdir()
            (work / MODELS / result["names"][0]).touch()
            return {**WHOLE, "names": ["whole", "another"]} if fewer and result is WHOLE else result

        steps = dict.fromkeys(
            ("find_features", "match_features"), lambda work, *given: (work / OF_OBJECT.pairs).touch()
        )
        steps["mask_agreement"] = lambda work: whole if (work / MODELS / "whole").exists() else of_object
        for name, step in (steps | {"map_images": map_images}).items():
            monkeypatch.setattr(camera_steps, name, step)
        said = []
        found = camera_steps.find_cameras(tmp_path, (), False, masks, said.append)
        (kept,) = (path.name for path in (tmp_path / MODELS).iterdir())
        return found, kept, said

    run.folder = (tmp_path / OF_OBJECT.pairs).parent
    return run


@pytest.mark.parametrize(
    ("whole", "of_object", "fewer", "kept", "masks"),
    [
        (0.95, UserError, False, "whole", FIT),
        (None, 0.95, False, "whole", FIT),
        (0.7, 0.9, True, "object", "key"),
        (0.5, 0.65, False, "object", "key"),
        (0.5, 0.65, True, "whole", "key"),
        (0.7, 0.75, False, "whole", "key"),
        (0.7, WorkError, False, "whole", "key"),
        (UserError, None, False, "object", "key"),
    ],
)
def test_the_cameras_that_fit_the_masks_are_kept(outcome, whole, of_object, fewer, kept, masks):
    found, model, said = outcome(whole, of_object, fewer=fewer)
    assert found["names"][0] == kept == model and found["masks"] == masks
    assert any(AGAIN in line for line in said) == (masks != FIT)
    assert ("are those of the object" in " ".join(found["notes"])) == (kept == "object")
    assert not outcome.folder.exists()


@pytest.mark.parametrize(
    ("whole", "of_object", "masks", "error", "words"),
    [
        (UserError, UserError, "key", UserError, "no cameras whole; inside the masks: no cameras object"),
        (UserError, 0.9, "", UserError, "no cameras whole; hint"),  # without masks whole photographs decide
        (0.5, DiskError, "key", WorkError, "no cameras"),
    ],
)
def test_without_any_cameras_the_reasons_are_given(outcome, whole, of_object, masks, error, words):
    with pytest.raises(error, match=words):
        outcome(whole, of_object, masks=masks)
    assert error is WorkError or not outcome.folder.exists()


def test_a_stored_result_is_for_the_masks_it_was_found_with():
    for stored, masks in (("", ""), (FIT, "a"), ("a", "a")):
        assert camera_steps._for_masks({**WHOLE, "masks": stored}, masks)["masks"] == stored
    with pytest.raises(ValueError):
        camera_steps._for_masks({**WHOLE, "masks": "a"}, "b")


@pytest.mark.parametrize(("step", "views", "is_known"), [(0, 12, True), (30, 12, True), (30, 5, False)])
def test_masks_of_a_ball_fit_the_cameras_unless_it_moves(tmp_path, monkeypatch, step, views, is_known):
    cameras, masks = ball_views(views)
    posed_images = []
    for view, (intrinsics, c2w, _) in enumerate(cameras):
        file = tmp_path / f"{view}.png"
        write_image(file, np.roll(masks[view], step * (view % 2), axis=1))
        posed_images.append(PosedImage(file, Lens(intrinsics), c2w, file))
    monkeypatch.setattr(camera_steps, "read_colmap", lambda *given: SimpleNamespace(images=posed_images))
    found = camera_steps.mask_agreement(tmp_path)
    assert found is None if not is_known else found > 0.9 if step == 0 else found < 0.8


def turning_before_a_wall(folder, background):
    """Six photographs of a small corner that turns before a static wall, and its masks on this grey value."""
    wall = (255 * cv2.resize(textures(5)[0], (640, 480))).astype(np.uint8)
    for name in ("photos", "masks"):
        (folder / name).mkdir()
    for index, pose in enumerate(poses(6)):
        rendered = render(pose, textures(1))
        is_object = cv2.erode((rendered != 128).any(axis=2).astype(np.uint8), np.ones((3, 3), np.uint8)) > 0
        picture, mask = wall.copy(), np.full((480, 640), background, np.uint8)
        picture[120:360, 160:480] = np.where(is_object[..., None], rendered, picture[120:360, 160:480])
        mask[120:360, 160:480][is_object] = 255
        write_image(folder / "photos" / f"{index}.png", picture)
        write_image(folder / "masks" / f"{index}.png", mask)


@pytest.mark.slow
def test_an_object_that_turns_before_a_wall_is_told_and_masks_solve_it(tmp_path):
    turning_before_a_wall(tmp_path, background=3)
    refuse("the camera stood still.*; walk around the object", tmp_path)
    assert not (tmp_path / "scene").exists()
    said = lines_of(tmp_path, masks=str(tmp_path / "masks"))
    for words in ("estimated again, from what is inside the masks", "the cameras are those of the object"):
        assert any(words in line for line in said), said
    turns = [np.linalg.inv(found[0, :3, :3]) @ found[-1, :3, :3] for found in (read(tmp_path / "scene").c2w, poses(6))]
    angles = [np.degrees(np.arccos((np.trace(turn) - 1) / 2)) for turn in turns]
    assert angles[0] == pytest.approx(angles[1], rel=0.05)
    assert not (tmp_path / "scene/prepare/object").exists()


@pytest.mark.slow
def test_a_walk_around_something_is_none(prepared_scene):
    database = prepared_scene / "scene" / "prepare" / DATABASE
    sides = {f"{index:04d}.png": 320 for index in range(3)}
    assert share_of_still_pairs(database, sides) < MOSTLY
    assert share_of_still_pairs(database.with_name("none.db"), sides) == 0.0

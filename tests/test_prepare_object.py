"""Cameras from the object alone replace those of whole photographs only if they fit the masks better."""

from types import SimpleNamespace

import numpy as np
import pytest
from test_fast_parts import ball_views

from data.errors import UserError
from data.io.images import write_image
from data.parsed_scene import Lens, PosedImage
from data.prepare import camera_steps
from data.prepare.reconstruct import MASKS, MODELS, OF_OBJECT
from data.prepare.steps import WorkError

WHOLE, OBJECT = {"names": ["whole"]}, {"names": ["object"]}
AGAIN = "estimated again, from what is inside the masks"


@pytest.fixture
def outcome(tmp_path, monkeypatch):
    """A function of the agreement (None: no cameras) of both attempts: result, name of the model, lines."""
    (tmp_path / MASKS).mkdir()

    def run(whole, of_object, error=UserError):
        said = []

        def map_images(work, frames, source=None):
            agreement, result = (of_object, OBJECT) if source == OF_OBJECT else (whole, WHOLE)
            if agreement is None:
                raise error(f"no cameras {result['names'][0]}")
            (work / MODELS).mkdir()
            (work / MODELS / result["names"][0]).touch()
            return result

        def mask_agreement(work):
            return whole if (work / MODELS / "whole").exists() else of_object

        for function in (map_images, mask_agreement):
            monkeypatch.setattr(camera_steps, function.__name__, function)
        for name in ("find_features", "match_features"):
            monkeypatch.setattr(camera_steps, name, lambda work, *given: (work / OF_OBJECT.pairs).touch())
        found = camera_steps.find_cameras(tmp_path, (), False, said.append)
        (kept,) = (path.name for path in (tmp_path / MODELS).iterdir())
        return found, kept, said

    run.work = tmp_path
    return run


@pytest.mark.parametrize(
    ("whole", "of_object", "kept", "is_repeated"),
    [
        (0.95, None, "whole", False),
        (0.7, 0.9, "object", True),
        (0.7, 0.6, "whole", True),
        (0.7, None, "whole", True),
        (0.0, 0.5, "object", True),
        (None, 0.5, "object", True),
    ],
)
def test_the_cameras_that_fit_the_masks_are_kept(outcome, whole, of_object, kept, is_repeated):
    found, model, said = outcome(whole, of_object)
    assert found["names"] == [kept] == [model]
    assert any(AGAIN in line for line in said) == is_repeated
    assert not (outcome.work / OF_OBJECT.pairs).parent.exists()


def test_without_any_cameras_the_reason_is_that_of_whole_photographs(outcome):
    with pytest.raises(UserError, match="no cameras whole"):
        outcome(None, None)
    assert not (outcome.work / OF_OBJECT.pairs).parent.exists()


def test_a_failure_of_the_machine_is_not_taken_for_missing_cameras(outcome):
    with pytest.raises(WorkError, match="no cameras whole"):
        outcome(None, 0.9, error=WorkError)


def test_without_masks_whole_photographs_decide(outcome):
    (outcome.work / MASKS).rmdir()
    assert outcome(0.0, 0.9) == (WHOLE, "whole", [])
    with pytest.raises(UserError, match="no cameras whole"):
        outcome(None, 0.9)


@pytest.mark.parametrize(("step", "views", "least", "most"), [(0, 12, 0.9, 1), (30, 12, 0, 0.8), (30, 5, 1, 1)])
def test_masks_of_a_ball_fit_the_cameras_unless_it_moves(tmp_path, monkeypatch, step, views, least, most):
    cameras, masks = ball_views(views)
    posed_images = []
    for view, (intrinsics, c2w, _) in enumerate(cameras):
        file = tmp_path / f"{view}.png"
        write_image(file, np.roll(masks[view], step * (view % 2), axis=1))
        posed_images.append(PosedImage(file, Lens(intrinsics), c2w, file))
    monkeypatch.setattr(camera_steps, "read_colmap", lambda *given: SimpleNamespace(images=posed_images))
    assert least <= camera_steps.mask_agreement(tmp_path) <= most

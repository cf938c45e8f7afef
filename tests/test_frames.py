"""Ground truth in another frame or scale is noticed; a surface that is merely wrong is scored."""

import numpy as np
import pytest
import trimesh
from runs import ROOT

from data.errors import UserError
from models.evaluation.frames import frame_note, require_in_region
from models.evaluation.mesh_distance import sample_surface

RNG = np.random.default_rng(5)
JUG = trimesh.load(ROOT / "data/demo/ground_truth.ply", process=False)
TRUTH = sample_surface(JUG, 20_000, RNG)
FOUND = sample_surface(JUG, 20_000, RNG) + RNG.normal(0, 0.01, (20_000, 3))
TABLE = RNG.uniform(-4, 4, (10_000, 3)) * [1, 1, 0.01]
TURN = trimesh.transformations.rotation_matrix(2.0, [1, 2, 3])[:3, :3]


def checked(given, found=FOUND, otherwise=None):
    require_in_region(given, "--gt gt.ply", "mend it")
    otherwise = 100 * given + 40 if otherwise is None else otherwise
    return frame_note(found, given, otherwise, "--gt gt.ply", "mend it")


OTHER_FRAMES = {
    "a hundred times as large": (100 * TRUTH, "radii from the centre of the region of interest"),
    "elsewhere": (TRUTH + 5.0, "its centre is 8.6"),
    "of the other flag": (0.4 * TRUTH + 0.3, "read in the other frame, it is"),
}


@pytest.mark.parametrize(("given", "words"), OTHER_FRAMES.values(), ids=OTHER_FRAMES)
def test_another_frame_is_named(given, words):
    with pytest.raises(UserError, match="another frame or scale than the scene") as refused:
        checked(given, otherwise=TRUTH)
    assert words in str(refused.value) and str(refused.value).endswith("mend it")
    assert "\n" not in str(refused.value)


FAR = {
    "shifted": TRUTH + [0.25, 0, 0],
    "axes swapped": TRUTH[:, [0, 2, 1]],
    "turned and scaled": 0.6 * TRUTH @ TURN.T + 0.1,
}


@pytest.mark.parametrize("given", FAR.values(), ids=FAR)
def test_ground_truth_far_from_the_surface_is_scored_with_a_note(given):
    assert checked(given).startswith("--gt gt.ply: is 0.") and checked(given).endswith("another frame: mend it")


SURFACES = {
    "the right one": FOUND,
    "a ball, as a training begins": trimesh.creation.icosphere(4, 0.5).vertices,
    "half of it": FOUND[FOUND[:, 1] > 0],
    "a tenth too large": 1.1 * FOUND,
    "noise": RNG.uniform(-0.7, 0.7, (20_000, 3)),
}


@pytest.mark.parametrize(("name", "found"), SURFACES.items(), ids=SURFACES)
def test_a_wrong_surface_is_scored_and_not_taken_for_another_frame(name, found):
    checked(np.concatenate([TRUTH, TABLE]))  # reaches beyond the region
    assert bool(checked(TRUTH, np.asarray(found))) == (name in ("a ball, as a training begins", "noise"))

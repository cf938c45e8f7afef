"""Each reason to leave a point out is enough by itself."""

import numpy as np
import pytest
import rigs
from scipy.spatial.transform import Rotation

from data.scenes.sparse import LEAST_REGION_POINTS, object_points, place_points

OBJECT = rigs.ellipsoid_points(600)
RANDOM = np.random.default_rng(4)


def clump(middle, count, width=0.15):
    """Points as dense as the object's."""
    return np.asarray(middle) + RANDOM.uniform(-width, width, (count, 3))


ARC = rigs.arc_of_cameras(15, 40.0)  # from +x
BEFORE = ARC[0] @ [0.0, 0.0, 0.6, 1.0]  # so near the first camera that most others do not show it
UNWANTED = {
    "behind the object, in every picture": (ARC, clump(rigs.MIDDLE + [-6.0, 0.0, -2.0], 300)),
    "before the object, in few pictures": (ARC, clump(BEFORE[:3], 200, 0.1)),
    "a little off the object, and few": (ARC, clump(rigs.MIDDLE + [0.0, 1.5, 0.0], 10)),
    "scattered": (ARC, rigs.MIDDLE + RANDOM.uniform(-1.5, 1.5, (60, 3))),
}


@pytest.mark.parametrize("name", UNWANTED)
def test_what_is_not_the_object_is_left_out(name):
    poses, others = UNWANTED[name]
    others = others[np.linalg.norm((others - rigs.MIDDLE) / rigs.AXES, axis=1) > 1.4]
    kept = object_points(rigs.stacked(poses), rigs.cloud(np.vstack([others, OBJECT])))
    of_the_object = np.isin(kept, OBJECT).all(axis=1)
    assert of_the_object.mean() > 0.99 and of_the_object.sum() > 0.9 * len(OBJECT)


def test_too_few_points_are_none_and_very_many_are_sampled_alike():
    cameras = rigs.stacked(ARC)
    for xyz in (OBJECT[: LEAST_REGION_POINTS - 1], OBJECT + 100, np.full((500, 3), np.nan), np.zeros((0, 3))):
        assert object_points(cameras, rigs.cloud(xyz)) is None
    assert object_points(cameras, rigs.cloud(OBJECT[:200])) is not None
    many = rigs.cloud(rigs.ellipsoid_points(50_000))
    first, second = (object_points(cameras, many) for _ in range(2))
    assert np.array_equal(first, second) and 15_000 < len(first) < 20_001


def survey(tilt):
    """Cameras c2w [20, 4, 4] in two rows over the plane z = 0, looking down, tilted by `tilt` radians at random."""
    poses = np.tile(np.diag([1.0, -1.0, -1.0, 1.0]), (20, 1, 1))
    poses[:, :3, 3] = [[index // 2, 2 * (index % 2), 4.0] for index in range(20)]
    turns = np.random.default_rng(0).normal(scale=tilt, size=(20, 3)) * [1, 1, 0]
    poses[:, :3, :3] @= Rotation.from_rotvec(turns).as_matrix()
    return poses


def test_all_dense_points_of_a_survey_belong_to_the_place():
    ground = np.random.default_rng(5).uniform([-1, -1, -0.1], [10, 3, 0.1], (2000, 3))
    for tilt in (0.0, 0.05):
        cameras = rigs.stacked(survey(tilt))
        assert len(place_points(cameras, rigs.cloud(ground))) > 0.9 * len(ground)
    assert place_points(rigs.stacked(ARC), rigs.cloud(OBJECT)) is None
    assert place_points(cameras, rigs.cloud(ground[: LEAST_REGION_POINTS - 1])) is None

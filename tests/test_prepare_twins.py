"""Sides of an object that look alike: cameras that were put on each other, and the matches that do it."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic_scene import look_at
from test_neus_writer import scene as any_scene

from data.parsed_scene import WorldFrame
from data.prepare.frames import Frame
from data.prepare.inspection.checks import _baseline
from data.prepare.inspection.epipolar import PairDistance, cameras, torn_pairs
from data.prepare.sfm import mapping, reconstruct, stages
from data.prepare.sfm.joining import Matched
from data.prepare.sfm.matches import components, forget_pairs, read_links
from data.prepare.sfm.twins import STRONG, twins
from data.prepare.walk import LEAST_TORN
from models.results.report.reconstruction import trust

pycolmap = pytest.importorskip("pycolmap")
COUNT, SIDES = 24, 400
FOCAL, SIZE = 500.0, (640, 480)


def ring(count):
    """Poses [count, 4, 4], camera to world, of a walk around an object."""
    angles = 2 * np.pi * np.arange(count) / count
    return np.array([look_at(3 * np.array([np.cos(angle), np.sin(angle), 0.3])) for angle in angles])


def project(pose, points):
    seen = (points - pose[:3, 3]) @ pose[:3, :3]
    return FOCAL * seen[:, :2] / seen[:, 2:] + np.array(SIZE) / 2


def matched(poses, folds):
    """Matches of an object whose surface repeats after a turn by 360 degrees over `folds`."""
    rng = np.random.default_rng(0)
    angle, height = rng.uniform(0, 2 * np.pi / folds, SIDES), rng.uniform(-0.8, 0.8, SIDES)
    radius = rng.uniform(0.7, 1.0, SIDES)
    copies = []
    for fold in range(folds):
        turned = angle + 2 * np.pi * fold / folds
        copies.append(np.column_stack([radius * np.cos(turned), radius * np.sin(turned), height]))
    seen = []
    for pose in poses:
        facing = [np.sum((pose[:3, 3] - at) * at * [1, 1, 0], axis=1) > 1.0 for at in copies]
        seen.append([(at, visible, project(pose, at)) for at, visible in zip(copies, facing, strict=True)])
    pairs = []
    for one in range(len(poses)):
        for other in range(one + 1, len(poses)):
            shifts = []  # copies of the one are those of the other, or the next ones
            for shift in range(folds):
                both = [(seen[one][fold], seen[other][(fold + shift) % folds]) for fold in range(folds)]
                common = [(a[2][a[1] & b[1]], b[2][a[1] & b[1]]) for a, b in both]
                shifts.append(tuple(np.concatenate(side) for side in zip(*common, strict=True)))
            best = max(shifts, key=lambda pixels: len(pixels[0]))
            if len(best[0]) >= 30:
                features = np.arange(len(best[0]))
                pairs.append(Matched((f"{one:04d}", f"{other:04d}"), (features, features), best))
    return pairs


def model_of(poses, points=()):
    """A model with points: place, and the images that see it."""
    model = pycolmap.Reconstruction()
    model.add_camera_with_trivial_rig(
        pycolmap.Camera(model="PINHOLE", width=640, height=480, params=[FOCAL, FOCAL, 320, 240], camera_id=1)
    )
    for index, pose in enumerate(poses):
        w2c = np.linalg.inv(pose)[:3]
        pixels = project(pose, np.array([place for place, _ in points])) if points else np.zeros((1, 2))
        image = pycolmap.Image(f"{index:04d}", pixels, 1, index + 1)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(pycolmap.Rotation3d(w2c[:, :3]), w2c[:, 3]))
    for key, (place, images) in enumerate(points):
        model.add_point3D(place, pycolmap.Track([pycolmap.TrackElement(int(image) + 1, key) for image in images]))
    return model


@pytest.mark.parametrize("folds", [2, 3, 4])
def test_sides_on_each_other_are_seen_and_their_matches_named(folds):
    poses = ring(COUNT)
    pairs, period = matched(poses, folds), COUNT // folds
    collapsed = model_of(poses[np.arange(COUNT) % period])
    agreeing = mapping.agreement(collapsed, pairs)
    torn, wrong = twins(collapsed, pairs, agreeing)
    assert len(torn) >= LEAST_TORN and all(int(b) - int(a) <= 2 for a, b in torn)
    away = {pair.names: (int(pair.names[1]) - int(pair.names[0])) % COUNT for pair in pairs}
    for names, steps in away.items():
        if (side := min(steps, COUNT - steps)) != period // 2:  # in the middle both are as likely
            assert (names in wrong) == (side > period // 2), names
    shuffled = np.random.default_rng(3).permutation(COUNT)
    mixed = [replace(pair, names=tuple(f"{shuffled[int(name)]:04d}" for name in pair.names)) for pair in pairs]
    order = np.argsort(shuffled)
    unordered = model_of(poses[np.arange(COUNT) % period][order])
    torn, wrong = twins(unordered, mixed, mapping.agreement(unordered, mixed))
    assert torn, "without an order"
    left = {pair.names: len(pair.pixels[0]) for pair in mixed if pair.names not in set(wrong)}
    assert len(components(sorted({name for pair in mixed for name in pair.names}), left)) == 1
    assert not any((shuffled.tolist().index(int(a)) - shuffled.tolist().index(int(b))) % period == 0 for a, b in left)


def test_surroundings_tell_sides_apart_in_any_order():
    """Photographs in no order, none on another one: a ground that differs is matched between true neighbours alone."""
    rng = np.random.default_rng(2)
    angles = 2 * np.pi * (np.arange(COUNT) + rng.uniform(-0.4, 0.4, COUNT)) / COUNT
    rng.shuffle(angles)
    poses = np.array([look_at(3 * np.array([np.cos(angle), np.sin(angle), 0.3])) for angle in angles])
    back = np.diag([-1.0, -1.0, 1.0, 1.0])
    collapsed = np.array([back @ pose if angle >= np.pi else pose for pose, angle in zip(poses, angles, strict=True)])
    ground = rng.uniform(0, 2 * np.pi, SIDES), rng.uniform(0.9, 1.3, SIDES)
    places = np.column_stack([ground[1] * np.cos(ground[0]), ground[1] * np.sin(ground[0]), np.full(SIDES, -0.8)])
    beside = np.cos(ground[0] - angles[:, None]) > 0.5  # [V, SIDES]
    pairs = []
    for pair in matched(poses, 2):
        one, other = map(int, pair.names)
        both = np.flatnonzero(beside[one] & beside[other])
        ends = zip(pair.pixels, (one, other), strict=True)
        added = [np.concatenate([own, project(poses[view], places[both])]) for own, view in ends]
        pairs.append(replace(pair, pixels=tuple(added), features=(np.arange(len(added[0])),) * 2))
    halves = (angles < np.pi, places), (angles >= np.pi, places @ back[:3, :3])
    seen = [(place, np.flatnonzero(half & of)) for half, at in halves for place, of in zip(at, beside.T, strict=True)]
    model = model_of(collapsed, [(place, images) for place, images in seen if len(images) > 1])
    torn, wrong = twins(model, pairs, mapping.agreement(model, pairs))
    assert torn and wrong
    for pair in pairs:
        one, other = map(int, pair.names)
        away = abs((angles[one] - angles[other] + np.pi) % (2 * np.pi) - np.pi)
        if abs(away - np.pi / 2) > 0.3:  # in the middle both are as likely
            assert (pair.names in wrong) == (away > np.pi / 2), pair.names


@pytest.mark.parametrize("folds", [2, 3])
def test_sides_that_nothing_separates_are_suspected_where_cameras_are_on_one_side(folds):
    """Photographs in no order, none on another one, before a plain ground."""
    rng = np.random.default_rng(3)
    angles = 2 * np.pi * (np.arange(COUNT) + rng.uniform(-0.4, 0.4, COUNT)) / COUNT
    rng.shuffle(angles)
    places = [
        np.array([np.cos(angles), np.sin(angles), np.full(COUNT, 0.3)]).T
        for angles in (angles, angles % (2 * np.pi / folds))
    ]
    right, collapsed = [np.array([look_at(3 * place) for place in at]) for at in places]
    pairs = matched(right, folds)
    model = model_of(collapsed)
    torn, wrong = twins(model, pairs, mapping.agreement(model, pairs))
    assert len(torn) > LEAST_TORN and wrong == []
    model = model_of(right)
    assert twins(model, pairs, mapping.agreement(model, pairs)) == ([], [])


def test_right_cameras_and_a_second_lap_are_not_suspected():
    for folds in (1, 2):
        poses = ring(COUNT)
        pairs, model = matched(poses, folds), model_of(poses)
        assert twins(model, pairs, mapping.agreement(model, pairs)) == ([], [])
    twice = np.concatenate([ring(12), ring(12)])  # a turntable, exactly
    model, pairs = model_of(twice), matched(twice, 1)
    assert twins(model, pairs, mapping.agreement(model, pairs)) == ([], [])


def test_few_wrong_matches_before_one_side_are_not_suspected():
    poses = ring(COUNT)[np.random.default_rng(1).permutation(COUNT // 2)]
    model = model_of(poses)
    pairs = [replace(pair, pixels=tuple(np.tile(side, (4, 1)) for side in pair.pixels)) for pair in matched(poses, 1)]
    towards = poses[:, :3, 2] @ poses[:, :3, 2].T
    beside = max(pairs, key=lambda pair: len(pair.pixels[0]))
    far = [(one, other) for one, other in np.argwhere(towards < np.cos(np.radians(80))) if one < other]
    for count, is_suspected in ((STRONG, False), (len(beside.pixels[0]), True)):
        few = tuple(pixels[:count] for pixels in beside.pixels)
        wrong = [Matched((f"{one:04d}", f"{other:04d}"), (np.arange(count),) * 2, few) for one, other in far]
        mixed = [pair for pair in pairs if pair.names not in {pair.names for pair in wrong}] + wrong
        agreeing = mapping.agreement(model, mixed)
        assert len(wrong) > 5 and not any(agreeing[pair.names] for pair in wrong)
        without_camera = Matched(("0000", "left out"), wrong[0].features, few)
        torn, removed = twins(model, [*mixed, without_camera], agreeing)
        assert bool(torn) == is_suspected and removed == []


def test_verified_matches_of_pairs_are_removed(tmp_path):
    path = tmp_path / "matches.db"
    options = pycolmap.SyntheticDatasetOptions(num_rigs=1, num_cameras_per_rig=1, num_frames_per_rig=4, num_points3D=60)
    with contextlib.closing(pycolmap.Database.open(str(path))) as opened:
        pycolmap.synthesize_dataset(options, opened)
        called = {image.name: image.name for image in opened.read_all_images()}
    names = sorted(called)
    forget_pairs(path, [(names[2], names[0])])
    links = {frozenset(pair) for pair in read_links(path, called)}
    assert len(links) == 5 and frozenset((names[0], names[2])) not in links


def test_inspect_names_neighbours_that_are_torn_apart():
    poses = ring(COUNT)[np.arange(COUNT) % 12]
    scene = replace(any_scene(), frame=WorldFrame("", doubt="the cameras are doubtful: a; do this"))
    assert (cameras(scene).verdict, cameras(scene).consequence) == ("bad", "do this")
    walk = SimpleNamespace(c2w=poses)
    pairs = [PairDistance(index, index + 1, 80.0 if index % 12 == 11 else 0.2) for index in range(COUNT - 1)]
    assert torn_pairs(walk, pairs) == [PairDistance(11, 12, 80.0)]
    assert torn_pairs(SimpleNamespace(c2w=ring(COUNT)), pairs) == []
    directions = poses[:, :3, 3] / np.linalg.norm(poses[:, :3, 3], axis=1, keepdims=True)
    finding = _baseline(SimpleNamespace(photographs=[""] * COUNT), directions)
    assert "lie on each other" in finding.consequence and "redundant" not in finding.consequence


def test_the_mesh_of_doubtful_cameras_is_not_called_reliable():
    figures = {"points_missing": 0.1, "cover_points": 0.9, "points_off_plane": 50, "points_scored": 50}
    figures |= {"sides_missing": "behind"}
    lines = " ".join(trust(figures, WorldFrame("", doubt="the cameras are doubtful: a; do this")))
    assert lines.startswith("the cameras are doubtful") and "reliable" not in lines and "behind" not in lines
    assert "the mesh is reliable" in " ".join(trust(figures))


@pytest.mark.parametrize(
    ("names", "torn", "is_used"), [(10, [], True), (9, [], True), (7, [], False), (10, [("a", "b")], False)]
)
def test_matches_are_separated_where_that_mends_the_cameras(names, torn, is_used, tmp_path, monkeypatch):
    def result(count, torn, wrong):
        model = {
            "folder": "0",
            "names": [f"{i}.png" for i in range(count)],
            "points": 900,
            "error": 1.0,
            "errors": {},
            "weak": [],
        }
        return mapping.MappingResult("incremental", {"incremental": count}, [model], (count, 9), torn=torn, wrong=wrong)

    frames = [Frame(f"{i}.png", f"{i}.jpg", 64, 48, None) for i in range(10)]
    (tmp_path / "database").mkdir()
    with contextlib.closing(pycolmap.Database.open(str(tmp_path / stages.DATABASE))):
        pass
    pair = ("0.png", "1.png")
    results = iter([result(10, [pair] * 2, [pair]), result(names, [pair for _ in torn], [])])
    monkeypatch.setattr(reconstruct, "mapped", lambda *given: next(results))
    monkeypatch.setattr(reconstruct, "_used", lambda *given: None)
    monkeypatch.setattr(reconstruct, "_has_more", lambda *given: False)
    removed = []
    monkeypatch.setattr(reconstruct.matches, "forget_pairs", lambda database, pairs: removed.extend(pairs))
    found = reconstruct.map_images(tmp_path, frames)
    assert removed == [pair] and (found["doubt"] == "") == is_used
    note = next(note for note in found["notes"] if "alike" in note)
    assert (note in found["remarks"]) == is_used
    assert note.startswith("different sides look alike" if is_used else "the cameras are doubtful: 2 pairs")
    assert is_used or "0.jpg and 1.jpg" in note

"""Problems of a scene are detected, graded and reported; a good scene passes all checks."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import rigs

from data.prepare.inspection.checks import CHECKED_SIDE, FAIR_VIEWS, GOOD_VIEWS, findings
from data.scenes.frustum import sphere_points

POSES = rigs.around(sphere_points(40), distance=3.0, middle=np.zeros(3))
GOOD = rigs.textured_scene(POSES, size=(96, 96))


def found(scene, check):
    return next(finding for finding in findings(scene) if finding.check == check)


def changed(scene, field, view, value):
    """The scene with image or mask of one view replaced."""
    values = list(getattr(scene, field))
    values[view] = value
    return replace(scene, **{field: tuple(values)})


def seen_from(directions, distance):
    return rigs.textured_scene(rigs.around(directions, distance, np.zeros(3)), size=(96, 96))


def test_of_a_good_scene_every_finding_is_good():
    verdicts = {finding.check: finding.verdict for finding in findings(GOOD)}
    # The pattern is noise, another in each view: nothing can be matched.
    assert len(verdicts) == 12 and {check for check, verdict in verdicts.items() if verdict != "good"} == {"cameras"}


def test_points_that_are_missing_or_elsewhere_are_told():
    assert found(replace(GOOD, masks=None), "points").verdict == "fair"
    for count, spread, verdict in ((400, 0.2, "good"), (100, 0.2, "fair"), (400, 9.0, "bad")):
        points = rigs.cloud(np.random.default_rng(0).uniform(-1, 1, (count, 3)) / np.sqrt(3) * spread)
        assert found(replace(GOOD, masks=None, points=points), "points").verdict == verdict


def test_a_blurred_view_is_named():
    blurred = changed(replace(GOOD, masks=None), "images", 17, cv2.GaussianBlur(GOOD.images[17], (0, 0), 1.5))
    finding = found(blurred, "sharpness")
    assert finding.verdict == "fair" and "view 17 (017.png);" in finding.figure
    scene = rigs.textured_scene(POSES[:6], size=(CHECKED_SIDE + 76, 96))  # examined reduced
    assert found(scene, "sharpness").verdict == found(scene, "exposure").verdict == "good"
    assert found(scene, "exposure").consequence.startswith("no view stands out: up to 0.75 stops")


def test_a_third_that_is_blurred_together_is_named():
    """Neighbours that are all blurred have nothing sharp beside them to be held against."""
    third, images = set(np.argsort(POSES[:, 0, 3])[: len(POSES) // 3].tolist()), list(GOOD.images)
    for view in third:
        images[view] = cv2.GaussianBlur(images[view], (0, 0), 2.0)
    finding = found(replace(GOOD, images=tuple(images)), "sharpness")
    named = {int(word) for word in finding.figure.split("and")[0].replace("(", " ").split() if word.isdigit()}
    assert finding.verdict == "bad" and named and named <= third, finding.figure
    assert f"and {len(third) - len(named)} more" in finding.figure


def test_a_view_of_another_exposure_is_named_but_not_as_blurred():
    for gain, factor in ((0.4, 1.0), (1.25 / 0.7, 0.4)):
        scene = replace(GOOD, images=tuple((factor * image * 0.7).astype(np.uint8) for image in GOOD.images))
        other = changed(scene, "images", 9, (gain * scene.images[9]).clip(0, 255).astype(np.uint8))
        finding = found(other, "exposure")
        assert finding.verdict == "fair" and finding.figure.endswith("view 9 (009.png)")
        assert found(other, "sharpness").verdict == "good"


def test_a_wrong_mask_is_named():
    mask = GOOD.masks[5]
    for wrong in (np.roll(mask, 20, axis=0), mask * (np.arange(96) < 44), 0 * mask):  # shifted, cut, empty
        finding = found(changed(GOOD, "masks", 5, wrong.astype(np.uint8)), "masks")
        assert finding.verdict != "good" and "view 5 (005.png)" in finding.figure and "and" not in finding.figure


def test_coverage_is_the_share_of_the_sphere_near_a_view():
    cap = (1 - np.cos(np.deg2rad(45))) / 2  # the cap of 45 degrees around one direction
    for poses, share in ((POSES[:1], cap), (POSES[[0, -1]], 2 * cap), (POSES, 1.0)):
        figure = found(rigs.textured_scene(poses), "coverage").figure
        assert float(figure.split("%")[0]) / 100 == pytest.approx(share, abs=0.012)
    verdicts = {FAIR_VIEWS - 1: "bad", FAIR_VIEWS: "fair", GOOD_VIEWS - 1: "fair", GOOD_VIEWS: "good"}
    for count, verdict in verdicts.items():
        assert found(rigs.textured_scene(POSES[:count]), "views").verdict == verdict


def test_parallax_and_the_size_of_the_sphere_are_measured():
    for degrees, verdict in ((2.0, "bad"), (25.0, "fair"), (90.0, "good")):
        directions = [[np.cos(turn), np.sin(turn), 0] for turn in np.deg2rad(np.linspace(0, degrees, 9))]
        finding = found(seen_from(directions, 3.0), "parallax")
        assert finding.verdict == verdict and finding.figure.startswith(f"{degrees:.0f} degrees")
    for distance, verdict in ((1.3, "fair"), (3.0, "good"), (8.0, "fair"), (16.0, "bad")):
        finding = found(seen_from(sphere_points(9), distance), "sphere size")
        share = 2 * rigs.FOCAL * np.tan(np.arcsin(1 / distance)) / 96
        assert finding.verdict == verdict and float(finding.figure.split()[0]) == pytest.approx(share, abs=0.006)


def test_overlap_is_the_share_of_the_ball_that_three_pictures_show():
    poses = POSES[:5].copy()
    poses[:, :3, 3] += 1.2 * poses[:, :3, 0]
    random = np.random.default_rng(0).uniform(-1, 1, (40000, 3))
    ball = random[np.linalg.norm(random, axis=1) < 1]
    counts = np.zeros(len(ball))
    for pose in poses:
        local = (ball - pose[:3, 3]) @ pose[:3, :3]
        pixel = local[:, :2] / local[:, 2:] * rigs.FOCAL + rigs.INTRINSICS[:2, 2]
        counts += (local[:, 2] > 0) & np.all((pixel > -0.5) & (pixel < np.array(rigs.SIZE) - 0.5), axis=1)
    figure = found(rigs.textured_scene(poses, masks=False), "overlap").figure
    assert 0.2 < np.mean(counts >= 3) < 0.9
    assert float(figure.split("%")[0]) / 100 == pytest.approx(np.mean(counts >= 3), abs=0.03)
    assert figure.endswith(f"median {np.median(counts):.0f}")

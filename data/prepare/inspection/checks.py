"""Checks of a scene: what is measured, how it is graded, and what it means for the training.

The scene is in its working frame: the region of interest is the unit sphere at the origin. V views. docs/formats.md
lists the checks.
"""

from __future__ import annotations

import numpy as np

from data.errors import listed_views
from data.prepare.inspection.epipolar import Finding, graded
from data.prepare.inspection.epipolar import cameras as camera_check
from data.prepare.inspection.image_checks import exposure, masks, sharpness
from data.prepare.walk import BESIDE
from data.scenes.frustum import Cameras, frustum_distances, sphere_points
from data.scenes.scene import Scene
from data.scenes.sparse import LEAST_POINTS, well_supported

# Number of views: the published recipe trains on 49 or 64; with fewer than eight the surface is underdetermined.
GOOD_VIEWS, FAIR_VIEWS = 20, 8

# Fraction of all directions observed so: 0.71 for a ring around the object, 0.4 for a half ring, 0.15 for one side.
GOOD_COVERAGE, FAIR_COVERAGE = 0.6, 0.3
DIRECTIONS = 2000  # sampled; 20 of them are 1 % of the sphere

# Two views triangulate a point; a third one verifies it.
SURE_VIEWS = 3
GOOD_OVERLAP, FAIR_OVERLAP = 0.95, 0.75  # fraction of the sphere's volume visible in SURE_VIEWS views

# Degrees from a view to its nearest neighbour, the largest gap: beyond 35 the same detail looks different.
GOOD_GAP, FAIR_GAP = 35.0, 50.0
SMALLEST_GAP = 0.5  # median, degrees: redundant frames of a video

# Degrees between the two views farthest apart: the depth error is about one pixel over the sine of this angle.
GOOD_PARALLAX, FAIR_PARALLAX = 40.0, 12.0

# Diameter of the sphere over the shorter side of the image. Rays are sampled over the whole image: at 0.4 one in eight
# hits the sphere, at 0.2 one in thirty. At 2 an image shows a quarter of the region.
GOOD_SMALLEST, FAIR_SMALLEST = 0.4, 0.2
GOOD_LARGEST, FAIR_LARGEST = 2.0, 4.0

# SfM points in the sphere: every eighth is held out for evaluation, and a median needs some tens of them.
GOOD_POINTS = 240

FAIR_STRAYED = 0.1  # fraction of the views that do not show the sphere's centre
# A surface patch is well observed by a camera within this angle of its normal; beyond, foreshortening reduces it to
# less than 0.7 of its size.
SEEN_ANGLE = 45.0  # degrees


def findings(scene: Scene) -> tuple[Finding, ...]:
    """The results of all checks, in the order of the table."""
    directions = _directions(scene)
    *geometry, points = _of_geometry(scene)
    images = camera_check(scene), sharpness(scene, directions), exposure(scene, directions)
    return (*geometry, *images, masks(scene, scene.cameras), points)


def bad_geometry(scene: Scene) -> list[Finding]:
    """The bad ones of the results that need no image, which take no time."""
    return [finding for finding in _of_geometry(scene) if finding.verdict == "bad"]


def _directions(scene: Scene) -> np.ndarray:
    """Unit vectors [V, 3] from the centre of the sphere to the cameras."""
    return scene.cameras.origins / np.linalg.norm(scene.cameras.origins, axis=1, keepdims=True)


def _of_geometry(scene: Scene) -> tuple[Finding, ...]:
    cameras, directions = scene.cameras, _directions(scene)
    return (
        _views(scene),
        _coverage(scene, directions),
        _overlap(cameras),
        _baseline(scene, directions),
        _parallax(directions),
        _sphere_size(cameras),
        _aim(scene, cameras),
        _points(scene),
    )


def _views(scene: Scene) -> Finding:
    count = scene.n_views
    verdict = graded(count, GOOD_VIEWS, FAIR_VIEWS)
    consequence = {
        "good": "there are enough views for the published recipes",
        "fair": "parts that few views show stay coarse: take more photographs of them",
        "bad": "so few views do not determine the shape: take at least eight photographs, better thirty",
    }
    return Finding("views", f"{count}", verdict, consequence[verdict])


def _coverage(scene: Scene, directions: np.ndarray) -> Finding:
    """The fraction of directions around the sphere with a camera within SEEN_ANGLE."""
    cosines = (sphere_points(DIRECTIONS) @ directions.T).max(axis=1)
    share = float(np.mean(cosines >= np.cos(np.deg2rad(SEEN_ANGLE))))
    verdict = graded(share, GOOD_COVERAGE, FAIR_COVERAGE)
    consequence = {
        "good": "most sides are observed; the mesh is arbitrary only where no camera looks",
        "fair": "the mesh is arbitrary on the sides that no camera sees: photograph them, or cut them off the mesh",
        "bad": "only one side is observed: the back of the mesh is arbitrary",
    }
    figure = f"{share:.0%} of the sphere within {SEEN_ANGLE:.0f} degrees of a view"
    sides = missing_sides(scene)
    return Finding("coverage", figure + (f", none from {sides}" if sides else ""), verdict, consequence[verdict])


def _overlap(cameras: Cameras) -> Finding:
    """The fraction of the unit ball's volume inside SURE_VIEWS frustums; occlusion is ignored."""
    # Radii uniform in volume. They use sqrt(2), since the golden ratio of the directions would correlate with them.
    radii = np.cbrt((np.arange(DIRECTIONS) * np.sqrt(2)) % 1.0)
    seen = np.sum(frustum_distances(sphere_points(DIRECTIONS) * radii[:, None], cameras) > 0, axis=0)
    share = float(np.mean(seen >= SURE_VIEWS))
    verdict = graded(share, GOOD_OVERLAP, FAIR_OVERLAP)
    consequence = {
        "good": "nearly all of the sphere is visible in several views",
        "fair": "parts visible in fewer than three views may float: photograph them more or choose a smaller sphere",
        "bad": "most of the sphere is visible in too few views: choose a smaller one (--roi) or aim the cameras at it",
    }
    figure = f"{share:.0%} of the sphere in {SURE_VIEWS} or more images, median {np.median(seen):.0f}"
    return Finding("overlap", figure, verdict, consequence[verdict])


def _angles(directions: np.ndarray) -> np.ndarray:
    """Pairwise angles [V, V] of `directions` [V, 3], degrees."""
    return np.rad2deg(np.arccos(np.clip(directions @ directions.T, -1, 1)))


def _baseline(scene: Scene, directions: np.ndarray) -> Finding:
    """The angle between each view and its nearest neighbour at the sphere's centre."""
    if len(directions) < 2:
        return Finding("baseline", "one view", "bad", "depth cannot be determined from a single view")
    angles = _angles(directions)
    np.fill_diagonal(angles, np.inf)
    nearest = angles.min(axis=1)
    lonely = int(np.argmax(nearest))
    verdict = graded(nearest[lonely], GOOD_GAP, FAIR_GAP)
    figure = f"{np.median(nearest):.1f} degrees to the next view (median), at most {nearest[lonely]:.1f}"
    if verdict != "good":
        name = listed_views(np.array([lonely]), scene.photographs)
        return Finding("baseline", figure, verdict, f"{name} has no near neighbour: add a photograph in between")
    if np.median(nearest) < SMALLEST_GAP:
        away = np.abs(angles.argmin(axis=1) - np.arange(len(angles)))
        consequence = (
            "many views are redundant: every second one is enough"
            if np.median(away) <= BESIDE
            else "views far apart in their order lie on each other: the camera was there twice, or sides look alike"
        )
        return Finding("baseline", figure, "fair", consequence)
    return Finding("baseline", figure, verdict, "neighbouring views show the same details")


def _parallax(directions: np.ndarray) -> Finding:
    """The angle between the two views farthest apart."""
    widest = float(_angles(directions).max())
    verdict = graded(widest, GOOD_PARALLAX, FAIR_PARALLAX)
    consequence = {
        "good": "the views determine the depths",
        "fair": "depth is less accurate than the lateral position: walk farther around the object",
        "bad": "the views are too similar to determine depth: walk around the object",
    }
    return Finding("parallax", f"{widest:.0f} degrees between the outermost views", verdict, consequence[verdict])


def _sphere_size(cameras: Cameras) -> Finding:
    """The diameter of the sphere in the images, in pixels."""
    squared = np.sum(cameras.origins**2, axis=1)
    focal = np.sqrt(np.abs(np.linalg.det(cameras.intrinsics[:, :2, :2])))
    pixels = 2 * focal / np.sqrt(np.maximum(squared - 1, 1e-6))
    share = float(np.median(pixels / cameras.sizes.min(axis=1)))
    cut = int(np.sum(frustum_distances(np.zeros((1, 3)), cameras)[:, 0] < 1))
    small, large = graded(share, GOOD_SMALLEST, FAIR_SMALLEST), graded(share, GOOD_LARGEST, FAIR_LARGEST)
    figure = f"{share:.2f} of the image's shorter side, {np.median(pixels):.0f} pixels; cut off in {cut} images"
    if small != "good":
        consequence = "few rays hit the sphere and details have few pixels: crop the photographs, or go nearer"
        return Finding("sphere size", figure, small, consequence)
    if large != "good":
        consequence = "each image shows a small part of the sphere: choose a smaller one (--roi) or step back"
        return Finding("sphere size", figure, large, consequence)
    return Finding("sphere size", figure, "good", "most rays hit the sphere")


def _aim(scene: Scene, cameras: Cameras) -> Finding:
    """The views that do not show the sphere's centre, or nothing of the sphere."""
    deep = frustum_distances(np.zeros((1, 3)), cameras)[:, 0]
    strayed, blind = np.flatnonzero(deep <= 0), np.flatnonzero(deep <= -1)
    if not len(strayed):
        return Finding("aim", "every image shows the centre of the sphere", "good", "all views contribute")
    if len(blind):
        figure = f"{listed_views(blind, scene.photographs)} show{'s' if len(blind) == 1 else ''} nothing of the sphere"
        consequence = "these views do not show the object: leave them out or correct their poses"
        return Finding("aim", figure, "bad", consequence)
    verdict = graded(len(strayed) / scene.n_views, 0.0, FAIR_STRAYED)
    figure = f"the centre of the sphere is outside {listed_views(strayed, scene.photographs)}"
    return Finding("aim", figure, verdict, "these views show only the rim of the sphere: check the region of interest")


def _points(scene: Scene) -> Finding:
    """The number of SfM points, which support the training and evaluate its surface."""
    if scene.points is None:
        lack = "the surface can be evaluated only by held-out photographs"
        if scene.masks is not None:
            return Finding("points", "none", "good", f"the masks give the initial shape; {lack}")
        return Finding("points", "none", "fair", f"{lack}: dataset.triangulate_points=True triangulates points")
    count = int((np.linalg.norm(well_supported(scene.points), axis=1) <= 1).sum())
    verdict = graded(count, GOOD_POINTS, LEAST_POINTS)
    consequence = {
        "good": "they support the training, and every eighth is held out to evaluate the surface",
        "fair": "too few to evaluate the surface: compare it with the photographs",
        "bad": "almost none are in the sphere: check whether it contains the object (--roi)",
    }
    return Finding("points", f"{count} of {len(scene.points.xyz)} in the sphere", verdict, consequence[verdict])


def missing_sides(scene: Scene) -> str:
    """The sides without a camera within SEEN_ANGLE of them, "" if there are none.

    The front is the side of the photograph nearest to the mean of the cameras; left and right are those of its
    photographer. Nothing is said of what is below, where an object stands, or if cameras are inside the region.
    """
    places = scene.c2w[:, :3, 3]
    if np.linalg.norm(places, axis=1).min() <= 1.0:
        return ""
    directions = places / np.linalg.norm(places, axis=1, keepdims=True)
    up = -scene.c2w[:, :3, 1].mean(axis=0) if scene.frame is None else scene.scene_to_world[2, :3]  # the world's z axis
    up = up / np.maximum(np.linalg.norm(up), np.finfo(float).tiny)
    level = directions - np.outer(directions @ up, up)
    first = int(np.argmax(level @ level.mean(axis=0)))
    front = level[first] / np.maximum(np.linalg.norm(level[first]), np.finfo(float).tiny)
    right = np.cross(up, front)
    sides = {"the left": -right, "the right": right, "behind": -front, "above": up}
    least = np.cos(np.radians(SEEN_ANGLE))
    missing = [name for name, side in sides.items() if (directions @ side).max() < least]
    return f"{', '.join(missing)} (the front is that of {scene.photographs[first]})" if missing else ""

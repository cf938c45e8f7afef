"""Is a scene fit to be trained on: what is measured, what is good, and what follows for the training.

The scene is in its working frame: the region of interest is the unit sphere at the origin. V views. docs/formats.md has
the table of the checks for their users.
"""

from __future__ import annotations

import numpy as np

from data.errors import listed_views
from data.inspection.camera_checks import cameras as camera_check
from data.inspection.finding import Finding, graded
from data.inspection.image_checks import exposure, masks, sharpness
from data.roi.frustum import Cameras, frustum_distances
from data.roi.sparse import LEAST_POINTS, well_supported
from data.scenes.scene import Scene

# Number of views: the published recipe trains on 49 or 64; below eight the surface between the views is guessed.
GOOD_VIEWS, FAIR_VIEWS = 20, 8

# A patch of surface is seen well while a camera is within this angle of its normal. Beyond it is foreshortened to less
# than 0.7 of its size.
SEEN_ANGLE = 45.0  # degrees
# Share of all directions so seen: a ring around the object has 0.71, an arc of half a turn 0.4, one side 0.15.
GOOD_COVERAGE, FAIR_COVERAGE = 0.6, 0.3
DIRECTIONS = 2000  # that are tried: 1 % of the sphere's surface is 20 of them

# A point needs two views to be located and a third to contradict a wrong match.
SURE_VIEWS = 3
GOOD_OVERLAP, FAIR_OVERLAP = 0.95, 0.75  # share of the sphere's volume that as many views see

# Degrees from a view to its nearest neighbour, the largest gap: beyond 35 the same detail looks different.
GOOD_GAP, FAIR_GAP = 35.0, 50.0
SMALLEST_GAP = 0.5  # median, degrees: frames of a video that say the same twice

# Degrees between the two views farthest apart: depth errs by about a pixel over the sine of it.
GOOD_PARALLAX, FAIR_PARALLAX = 40.0, 12.0

# Diameter of the sphere over the shorter side of the image. Rays are drawn from the whole image: at 0.4 one in
# eight meets the sphere, at 0.2 one in thirty. At 2 an image shows a quarter of what is to be reconstructed.
GOOD_SMALLEST, FAIR_SMALLEST = 0.4, 0.2
GOOD_LARGEST, FAIR_LARGEST = 2.0, 4.0

# Points of structure from motion in the sphere: every eighth is a witness, and some tens of these are a median.
GOOD_POINTS = 240

FAIR_STRAYED = 0.1  # share of the views whose image does not show the middle of the sphere


def findings(scene: Scene) -> tuple[Finding, ...]:
    """Every check of the table, in the order of the table."""
    cameras = cameras_of(scene)
    directions = cameras.origins / np.linalg.norm(cameras.origins, axis=1, keepdims=True)
    return (
        _views(scene),
        _coverage(directions),
        _overlap(cameras),
        _baseline(scene, directions),
        _parallax(directions),
        _sphere_size(cameras),
        _aim(scene, cameras),
        camera_check(scene),
        sharpness(scene, directions),
        exposure(scene, directions),
        masks(scene, cameras),
        _points(scene),
    )


def cameras_of(scene: Scene) -> Cameras:
    """The scene's cameras, in the working frame."""
    sizes = np.array([scene.size(view) for view in range(scene.n_views)], dtype=np.float64)
    return Cameras(scene.intrinsics, scene.c2w, sizes)


def sphere_points(count: int) -> np.ndarray:
    """`count` evenly spread unit vectors [count, 3]: the Fibonacci lattice (Gonzalez 2010, Math. Geosciences 42)."""
    index = np.arange(count) + 0.5
    turn = np.pi * (1 + np.sqrt(5)) * index
    height = 1 - 2 * index / count
    across = np.sqrt(1 - height**2)
    return np.stack([across * np.cos(turn), across * np.sin(turn), height], axis=1)


def _views(scene: Scene) -> Finding:
    count = scene.n_views
    verdict = graded(count, GOOD_VIEWS, FAIR_VIEWS)
    consequence = {
        "good": "there are enough views for the published recipes",
        "fair": "parts that only few views see stay coarse: take more photographs there",
        "bad": "between so few views the shape is guessed: take at least eight photographs, better thirty",
    }
    return Finding("views", f"{count}", verdict, consequence[verdict])


def _coverage(directions: np.ndarray) -> Finding:
    """Share of the directions around the sphere that have a camera within SEEN_ANGLE."""
    cosines = (sphere_points(DIRECTIONS) @ directions.T).max(axis=1)
    share = float(np.mean(cosines >= np.cos(np.deg2rad(SEEN_ANGLE))))
    verdict = graded(share, GOOD_COVERAGE, FAIR_COVERAGE)
    consequence = {
        "good": "most sides are seen; the mesh is made up only where no camera looks",
        "fair": "the sides that no camera sees are made up: cut them off the mesh, or photograph them",
        "bad": "only one side is seen: the mesh is a shell with a made-up back",
    }
    return Finding(
        "coverage",
        f"{share:.0%} of the sphere within {SEEN_ANGLE:.0f} degrees of a view",
        verdict,
        consequence[verdict],
    )


def _overlap(cameras: Cameras) -> Finding:
    """Share of the unit ball's volume that SURE_VIEWS images show; what hides behind the surface counts as shown."""
    # Evenly in volume; the golden ratio already turns the directions, so that its multiples would go with them.
    radii = np.cbrt((np.arange(DIRECTIONS) * np.sqrt(2)) % 1.0)
    seen = np.sum(frustum_distances(sphere_points(DIRECTIONS) * radii[:, None], cameras) > 0, axis=0)
    share = float(np.mean(seen >= SURE_VIEWS))
    verdict = graded(share, GOOD_OVERLAP, FAIR_OVERLAP)
    consequence = {
        "good": "nearly every place in the sphere is held by several views",
        "fair": "what fewer than three views see floats: take more photographs of it or choose a smaller sphere",
        "bad": "most of the sphere is held by too few views: choose a smaller one (--roi) or aim the cameras at it",
    }
    figure = f"{share:.0%} of the sphere in {SURE_VIEWS} or more images, median {np.median(seen):.0f}"
    return Finding("overlap", figure, verdict, consequence[verdict])


def _angles(directions: np.ndarray) -> np.ndarray:
    """Degrees between each two of `directions` [V, 3]: [V, V]."""
    return np.rad2deg(np.arccos(np.clip(directions @ directions.T, -1, 1)))


def _baseline(scene: Scene, directions: np.ndarray) -> Finding:
    """From each view to its nearest neighbour, as seen from the middle of the sphere."""
    if len(directions) < 2:
        return Finding("baseline", "one view", "bad", "a single view has no neighbour that could fix its depths")
    angles = _angles(directions)
    np.fill_diagonal(angles, np.inf)
    nearest = angles.min(axis=1)
    lonely = int(np.argmax(nearest))
    verdict = graded(nearest[lonely], GOOD_GAP, FAIR_GAP)
    figure = f"{np.median(nearest):.1f} degrees to the next view (median), at most {nearest[lonely]:.1f}"
    if verdict != "good":
        name = listed_views(np.array([lonely]), scene.image_names)
        return Finding("baseline", figure, verdict, f"{name} has no near neighbour: add a photograph in between")
    if np.median(nearest) < SMALLEST_GAP:
        return Finding("baseline", figure, "fair", "many views say the same twice: every second one trains as well")
    return Finding("baseline", figure, verdict, "neighbouring views see the same details")


def _parallax(directions: np.ndarray) -> Finding:
    """The angle between the two views farthest apart."""
    widest = float(_angles(directions).max())
    verdict = graded(widest, GOOD_PARALLAX, FAIR_PARALLAX)
    consequence = {
        "good": "the views fix the depths",
        "fair": "depths are less certain than what lies across: walk farther around the object",
        "bad": "the views are nearly alike and leave the depths open: walk around the object",
    }
    return Finding("parallax", f"{widest:.0f} degrees between the outermost views", verdict, consequence[verdict])


def _sphere_size(cameras: Cameras) -> Finding:
    """Diameter of the sphere in the images: the angle it is seen under, through the focal length."""
    squared = np.sum(cameras.origins**2, axis=1)
    focal = np.sqrt(np.abs(np.linalg.det(cameras.intrinsics[:, :2, :2])))
    pixels = 2 * focal / np.sqrt(np.maximum(squared - 1, 1e-6))
    share = float(np.median(pixels / cameras.sizes.min(axis=1)))
    cut = int(np.sum(frustum_distances(np.zeros((1, 3)), cameras)[:, 0] < 1))
    small, large = graded(share, GOOD_SMALLEST, FAIR_SMALLEST), graded(share, GOOD_LARGEST, FAIR_LARGEST)
    figure = f"{share:.2f} of the image's shorter side, {np.median(pixels):.0f} pixels; cut off in {cut} images"
    if small != "good":
        consequence = "few rays meet the sphere and details are few pixels: crop the photographs, or go nearer"
        return Finding("sphere size", figure, small, consequence)
    if large != "good":
        consequence = "each image shows a small part of the sphere: choose a smaller one (--roi) or step back"
        return Finding("sphere size", figure, large, consequence)
    return Finding("sphere size", figure, "good", "most rays meet the sphere")


def _aim(scene: Scene, cameras: Cameras) -> Finding:
    """The views whose image does not show the middle of the sphere, or nothing of the sphere."""
    deep = frustum_distances(np.zeros((1, 3)), cameras)[:, 0]
    strayed, blind = np.flatnonzero(deep <= 0), np.flatnonzero(deep <= -1)
    if not len(strayed):
        return Finding("aim", "every image shows the middle of the sphere", "good", "all views take part")
    if len(blind):
        figure = f"{listed_views(blind, scene.image_names)} show{'s' if len(blind) == 1 else ''} nothing of the sphere"
        return Finding(
            "aim", figure, "bad", "such views teach nothing of the object: leave them out or mend their poses"
        )
    verdict = graded(len(strayed) / scene.n_views, 0.0, FAIR_STRAYED)
    figure = f"the middle of the sphere is outside {listed_views(strayed, scene.image_names)}"
    return Finding("aim", figure, verdict, "such views show only the rim of the sphere: is it where the object is?")


def _points(scene: Scene) -> Finding:
    """Of structure from motion: what tells the shape before the training, and how true it is after it."""
    if scene.points is None:
        told = "nothing but held-out photographs will say how true the surface is"
        if scene.masks is not None:
            return Finding("points", "none", "good", f"the masks give the first shape; {told}")
        return Finding("points", "none", "fair", f"{told}: dataset.refine_cameras=poses finds some")
    count = int((np.linalg.norm(well_supported(scene.points), axis=1) <= 1).sum())
    verdict = graded(count, GOOD_POINTS, LEAST_POINTS)
    consequence = {
        "good": "they pull the surface to them, and every eighth is kept out to say how true it is",
        "fair": "too few to say how true the surface is: compare it with the photographs",
        "bad": "the sphere holds next to none of them: is it where the object is (--roi)?",
    }
    return Finding("points", f"{count} of {len(scene.points.xyz)} in the sphere", verdict, consequence[verdict])

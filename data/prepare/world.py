"""The world frame of a prepared scene: z up, and metres where the size is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from data.cameras import mean_up
from data.errors import listed
from data.parsed_scene import ParsedScene, WorldFrame, transformed
from data.prepare.frames import Frame, facing_views, position_of
from data.prepare.gps import Located, georeference, located
from data.prepare.metric import Known, measured
from data.prepare.sources import upright_size
from data.scenes.region import parse_roi

# Ratio of the second to the largest singular value of the cameras' x axes; below, they do not define a plane.
LEAST_SPREAD = 0.1
# Cameras on one side that look down by an angle have a mean up direction that is off by this angle.
STEEPEST = np.cos(np.radians(70.0))
LEAST_FLOOR = 0.25  # fraction of the points on the floor; a smaller plane is not taken for it
MOST_TILT = np.cos(np.radians(15.0))  # of the floor's normal or a world axis from the up direction of the cameras
LEAST_AGREEING = 0.9  # fraction of the cameras that are not upside down; with fewer, no up direction is plausible
FROM_FLOOR = "the largest plane of the SfM points, taken for the floor"
# Standard errors of up by GPS, radians: above the first it is not used, above the second the cameras' may be finer.
MOST_GPS_TILT, FINE_GPS_TILT = np.radians(10.0), np.radians(3.0)
LIKELY = 3.0  # standard errors within which another direction may be the same
# A survey: at least so many cameras, all within this angle of one direction, the lesser extent of their positions over
# the greater one, or the length of the mean of their x axes (0 for rows that are flown to and fro, 1 if all are alike).
LEAST_SURVEY, MOST_NADIR, LEAST_AREA, MOST_ALIGNED = 6, np.radians(20.0), 0.4, 0.7
PLANES = 500  # random triples of points
THICKNESS = 0.01  # of the floor, in median distances of the points from their median
MOST_POINTS = 5000  # a random subset of this size is enough


def world_frame(
    parsed: ParsedScene,
    known: Known,
    frames: Sequence[Frame],
    sources: Mapping[str, Path],
    model: Mapping[str, Any],
    roi: str = "",
    notes: Sequence[str] = (),
) -> ParsedScene:
    """The model of structure from motion, upright and in metres where the size is known, with notes on photographs.

    Of several positions of the object, it is upright in that with the most photographs. Views of panoramas that do not
    show the centre of the region `roi`, or of the cameras, are left out. `model`: "errors", mean reprojection errors in
    pixels by the name of the image, and what `map_images` says of it. Raises UserError as `measured`.
    """
    errors = model.get("errors", {})
    called = {frame.name: sources[frame.source] for frame in frames if frame.source in sources}
    shown = [image.path.name for image in parsed.images]
    sizes = {name: upright_size(called[name]) for name in shown if name in called} if known.length else {}
    positions = Counter(position_of(frame.source) for frame in frames)
    position = max(positions, key=positions.__getitem__, default="")
    turned = {frame.name for frame in frames if position_of(frame.source) != position}
    gps = located(parsed, {name: path for name, path in called.items() if name not in turned})
    standing = replace(parsed, images=tuple(image for image in parsed.images if image.path.name not in turned))
    stood = measured(upright(parsed, gps, standing), known, called, sizes, gps)
    grid = None if gps is None else georeference(stood, gps)
    named = {frame.source: errors[frame.name] for frame in frames if frame.name in errors and frame.name in shown}
    stood = facing_views(stood, parse_roi(roi).centre if roi else None)
    without = tuple(frame.source for frame in frames if frame.name not in shown)
    outliers = gps.left_out if gps else ()
    noted = [f"GPS positions that do not fit the cameras are left out: {listed(outliers)}"] if outliers else []
    frame = replace(stood.frame or WorldFrame(""), camera_errors=named, without_camera=without, reference=grid)
    frame = replace(frame, doubt=model.get("doubt", ""), limit=model.get("limit", ""))
    frame = replace(frame, notes=(*notes, *model.get("remarks", ()), *noted))
    return replace(stood, frame=frame, notes=(*stood.notes, *noted))


def upright(parsed: ParsedScene, gps: Located | None = None, standing: ParsedScene | None = None) -> ParsedScene:
    """The scene with the world frame rotated about its origin so that the z axis points up; `frame` says how.

    By the GPS positions if they determine it, the x axis then points east. A floor, and with coarse positions
    also the cameras, give a finer direction, where it is within the error of the positions. `standing`: with the images
    alone whose up directions agree, if not all do.
    """
    up, how = _seen_up(standing or parsed)
    turn = np.eye(4)
    if gps is None or gps.tilt > MOST_GPS_TILT:
        turn[:3, :3] = rotation_to_z(up)
        return transformed(parsed, turn, WorldFrame(up_source=how))
    is_fine = how == FROM_FLOOR or gps.tilt > FINE_GPS_TILT
    up = gps.turn @ up
    if not is_fine or up[2] < np.cos(LIKELY * gps.tilt):
        up, how = np.array([0.0, 0.0, 1.0]), f"GPS positions of {len(gps.views)} photographs"
    turn[:3, :3] = rotation_to_z(up) @ gps.turn
    return transformed(parsed, turn, WorldFrame(up_source=how))


def _seen_up(parsed: ParsedScene) -> tuple[np.ndarray, str]:
    """The unit direction [3] that points up by cameras and points, and how it was found, in words."""
    poses = np.stack([image.c2w for image in parsed.images])
    if (up := survey_up(poses)) is not None:
        return up, "the cameras, which all look down as in a survey"
    up, how = camera_up(poses), "the cameras, held level on average"
    if np.mean(-poses[:, :3, 1] @ up > 0.0) < LEAST_AGREEING:
        how = "the mean of cameras that do not agree, so it is not known"
        level = np.linalg.svd(poses[:, :3, 0])[2][2]  # across all x axes
        if np.mean(np.abs(poses[:, :3, 1] @ level) > STEEPEST) >= LEAST_AGREEING:
            up, how = (
                -level * np.sign(level @ poses[:, :3, 2].mean(axis=0)),
                "cameras, some upside down, that look down",
            )
    floor = None if parsed.points is None else floor_normal(parsed.points.xyz, up)
    return (up, how) if floor is None else (floor, FROM_FLOOR)


def survey_up(poses: np.ndarray) -> np.ndarray | None:
    """The unit direction [3] against which all cameras with poses [V, 4, 4] look, if they are those of a survey.

    They are spread over an area across it, not along a path as before a facade, or the tops of their images point
    in different directions. None for other cameras.
    """
    along = poses[:, :3, 2].mean(axis=0)
    down = along / max(float(np.linalg.norm(along)), np.finfo(float).tiny)
    if len(poses) < LEAST_SURVEY or (poses[:, :3, 2] @ down).min() < np.cos(MOST_NADIR):
        return None
    places = poses[:, :3, 3] - poses[:, :3, 3].mean(axis=0)
    extents = np.linalg.svd(places - np.outer(places @ down, down), compute_uv=False)
    is_turned = np.linalg.norm(poses[:, :3, 0].mean(axis=0)) < MOST_ALIGNED
    return -down if extents[1] >= LEAST_AREA * extents[0] or is_turned else None


def camera_up(poses: np.ndarray) -> np.ndarray:
    """The unit direction [3] that points up in most photographs. poses: [V, 4, 4], camera to world.

    A camera held level has a horizontal x axis. If the x axes of all cameras define a plane, its normal is the result;
    else it is the mean of the cameras' up directions.
    """
    mean = mean_up(poses)
    values, vectors = np.linalg.svd(poses[:, :3, 0])[1:]
    if values[1] >= LEAST_SPREAD * values[0]:
        normal = vectors[2] * np.sign(vectors[2] @ mean or 1.0)
        if normal @ mean >= STEEPEST:
            return normal
    return mean


def plausible_up(poses: np.ndarray) -> np.ndarray | None:
    """`camera_up`, or the axis of the world frame close to it; None if the cameras do not agree on it."""
    up = camera_up(poses)
    if np.mean(-poses[:, :3, 1] @ up > 0.0) < LEAST_AGREEING:
        return None
    axis = np.rint(up)
    return axis if np.linalg.norm(axis) == 1.0 and axis @ up >= MOST_TILT else up


def floor_normal(points: np.ndarray, up: np.ndarray) -> np.ndarray | None:
    """The unit normal [3] of the floor under points [N, 3], close to `up` [3]; None if no plane is large enough."""
    if len(points) > MOST_POINTS:
        points = np.random.default_rng(0).choice(points, MOST_POINTS, replace=False)
    size = np.median(np.linalg.norm(points - np.median(points, axis=0), axis=1)) if len(points) else 0.0
    best = largest_plane(points, THICKNESS * size, up)
    if best.sum() < max(3, LEAST_FLOOR * len(points)):
        return None
    normal = fitted_plane(points[best])[1]
    return normal * np.sign(normal @ up)


def largest_plane(points: np.ndarray, thickness: float, up: np.ndarray | None = None) -> np.ndarray:
    """Which of the points [N, 3] are within `thickness` of the plane that has the most: bool [N].

    `up`: its normal is within MOST_TILT of this unit vector [3]. RANSAC (Fischler and Bolles, Communications of the ACM
    24, 1981).
    """
    best = np.zeros(len(points), bool)
    for triple in np.random.default_rng(0).integers(len(points), size=(PLANES, 3)) if len(points) else ():
        corner, one, two = points[triple]
        normal = np.cross(one - corner, two - corner)
        length = np.linalg.norm(normal)
        if length == 0.0 or (up is not None and abs(normal @ up) < MOST_TILT * length):
            continue
        near = np.abs((points - corner) @ (normal / length)) < thickness
        best = near if near.sum() > best.sum() else best
    return best


def fitted_plane(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point [3] and the unit normal [3] of the plane closest to points [N, 3] in the least squares sense."""
    middle = points.mean(axis=0)
    return middle, np.linalg.svd(points - middle, full_matrices=False)[2][2]


def rotation_to_z(up: np.ndarray) -> np.ndarray:
    """The smallest rotation [3, 3] that maps the unit vector `up` [3] to the z axis (Rodrigues' formula)."""
    if up[2] < -1.0 + 1e-12:
        return np.diag([1.0, -1.0, -1.0])
    axis = np.cross(up, [0.0, 0.0, 1.0])
    cross = np.array([[0.0, -axis[2], axis[1]], [axis[2], 0.0, -axis[0]], [-axis[1], axis[0], 0.0]])
    return np.eye(3) + cross + cross @ cross / (1.0 + up[2])

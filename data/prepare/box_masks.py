"""Transfers boxes drawn on a few images to all images by the SfM points, as input of GrabCut.

V views. The SfM points inside the frustums of all boxes belong to the object and bound it in the other images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data.errors import UserError, listed
from data.io.untrusted import kind, number, read_object
from data.parsed_scene import MASK_HALF
from data.prepare.sources import upright_size
from data.scenes.frustum import enclosing_ball, meeting_point
from data.scenes.region import OUTSIDE_RADII, SENTENCE, described_region
from data.scenes.scene import Scene, radius_of
from data.scenes.sparse import TRIMMED, well_supported

LEAST_POINTS = 12  # in all boxes; fewer do not bound the object
LEAST_AGREEMENT = 0.5  # fraction of the points in all other boxes that a box has to contain
CARRIED_MARGIN = 0.15  # of a transferred box's sides: few points are near the outline of the object
SPHERE_MARGIN = 1.2  # radius of the region over that of the ball around the points, likewise
BOXES_FILE = "boxes.json"
OF_SCENE = "image/"  # prefix of the names in the scene folder, since a source image may have the same name
LEAST_SIDE = 2.0  # pixels; a smaller box is a mistake


def by_view(scene: Scene, boxes: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """The boxes of `find_boxes` by view index; raises UserError for an image without a camera."""
    of_scene = {f"{OF_SCENE}{view:03d}.png": view for view in range(scene.n_views)}
    of_images = {name: view for view, name in enumerate(scene.image_names)}
    places = of_scene | of_images
    missing = [name for name in boxes if name not in places]
    if missing:
        raise UserError(f"--masks box: no camera was found for {listed(missing)}; draw on another photograph")
    return {places[name]: box for name, box in boxes.items()}


def object_points(scene: Scene, boxes: Mapping[int, np.ndarray]) -> np.ndarray:
    """The SfM points [K, 3] inside every box; `boxes` are fractions of the images' sides, [4] by view.

    Raises UserError for a box that contains too few points, misses the points in the other boxes, or is outside the
    region of interest.
    """
    if scene.points is None:
        raise UserError("--masks box: there are no SfM points to transfer the boxes; give a folder of masks")
    xyz = well_supported(scene.points)
    held = {scene.image_names[view]: _is_in(project(scene, view, xyz), box) for view, box in boxes.items()}
    for name, inside in held.items():
        if inside.sum() < LEAST_POINTS:
            raise UserError(
                f"--masks box: the box of {name} contains {inside.sum()} SfM points, too few to "
                "transfer it to the other photographs: it misses the object, or the object has no texture; draw "
                "another box, or give a folder of masks"
            )
    for name in held:
        _require_agreement(name, held)
    kept = np.logical_and.reduce(list(held.values()))
    near = np.linalg.norm(xyz, axis=1) <= 1.0  # in the region of interest: boxes contain the background, too
    if (kept & near).sum() < LEAST_POINTS:
        raise UserError(
            f"--masks box: of the {kept.sum()} points in the boxes ({listed(list(held))}), {(kept & near).sum()} are "
            "in the region of interest: the boxes miss the object; draw other boxes, or choose another --roi"
        )
    return xyz[kept & near]


def on_masks(scene: Scene, points: np.ndarray, rectangles: Mapping[int, np.ndarray]) -> np.ndarray:
    """The points [K, 3] that project onto the masks uint8 [H, W] of some views; all points if too few remain.

    Boxes contain the background, too, such as a wall, which in another view is beside the object.
    """
    kept = np.logical_and(*seen_by(scene, points, rectangles)).all(axis=0)
    return points[kept] if kept.sum() >= LEAST_POINTS else points


def seen_by(scene: Scene, points: np.ndarray, masks: Mapping[int, np.ndarray]) -> np.ndarray:
    """bool [2, V, K]: whether points [K, 3] are in the images and on the masks of V views; masks: uint8 [H, W]."""
    found = []
    for view, mask in masks.items():
        shares = project(scene, view, points)
        is_shown = _is_in(shares, np.array([0.0, 0.0, 1.0, 1.0]))
        x, y = (np.where(is_shown, shares.T, 0.0) * np.array([scene.size(view)]).T).astype(int)
        x, y = np.minimum(x, mask.shape[1] - 1), np.minimum(y, mask.shape[0] - 1)
        found.append((is_shown, mask[y, x] > MASK_HALF))
    return np.array(found).swapaxes(0, 1)


def _require_agreement(name: str, held: Mapping[str, np.ndarray]) -> None:
    """Raises UserError if a box misses the points that all other boxes contain."""
    others = [inside for other, inside in held.items() if other != name]
    if not others:
        return
    common = np.logical_and.reduce(others)
    if common.sum() >= LEAST_POINTS and (held[name] & common).sum() < LEAST_AGREEMENT * common.sum():
        share = (held[name] & common).sum() / common.sum()
        raise UserError(
            f"--masks box: the box of {name} contains {share:.0%} of the points in the other boxes: one of them "
            f"({listed(list(held))}) misses the object; draw it again"
        )


def doubts(scene: Scene, boxes: Mapping[int, np.ndarray]) -> list[str]:
    """A warning if no box contains the point that the cameras look at; [] otherwise."""
    cameras = scene.c2w
    focus = meeting_point(cameras[:, :3, 3], cameras[:, :3, 2])
    if focus is None or any(_is_in(project(scene, view, focus[None]), box).any() for view, box in boxes.items()):
        return []
    names = listed([scene.image_names[view] for view in boxes])
    return [
        f"the point that the cameras look at is outside of the box ({names}): if the box misses the object, draw it "
        "again"
    ]


def around(scene: Scene, points: np.ndarray) -> Scene:
    """The scene with its unit sphere around points [K, 3] and no camera inside; images and masks are unchanged.

    The note on the new region replaces that on the old one.
    """
    centre, radius = enclosing_ball(_central(points))
    nearest = np.linalg.norm(scene.c2w[:, :3, 3] - centre, axis=1).min()
    radius = min(SPHERE_MARGIN * radius, nearest / OUTSIDE_RADII)
    place = np.diag([radius, radius, radius, 1.0])
    place[:3, 3] = centre
    c2w = scene.c2w.copy()
    c2w[:, :3, 3] = (c2w[:, :3, 3] - centre) / radius
    moved = scene.points and replace(scene.points, xyz=(scene.points.xyz - centre) / radius)
    centred = replace(scene, c2w=c2w, points=moved, scene_to_world=scene.scene_to_world @ place)
    source = f"from {len(points)} SfM points in the boxes"
    region = described_region(centred.scene_to_world[:3, 3], radius_of(centred), source)
    others = (note for note in scene.notes if not note.startswith(SENTENCE))
    return replace(centred, notes=(region.how, *others))


def carried(scene: Scene, points: np.ndarray, boxes: Mapping[int, np.ndarray]) -> list[np.ndarray | None]:
    """A box [4] in pixels for each view: as drawn, else around the points [K, 3], else None if they are not visible."""
    rectangles: list[np.ndarray | None] = []
    inner = _central(points)
    for view in range(scene.n_views):
        size = np.array(scene.size(view), dtype=np.float64)
        if view in boxes:
            rectangles.append(boxes[view] * np.tile(size, 2))
            continue
        pixels = project(scene, view, inner) * size
        pixels = pixels[np.isfinite(pixels).all(axis=1)]
        if 2 * len(pixels) < len(inner):
            rectangles.append(None)  # most points are behind the camera
            continue
        low, high = pixels.min(axis=0), pixels.max(axis=0)
        margin = CARRIED_MARGIN * (high - low) + 1
        box = np.concatenate([np.clip(low - margin, 0, size), np.clip(high + margin, 0, size)])
        rectangles.append(box if (box[2:] - box[:2] >= 1).all() else None)
    return rectangles


def project(scene: Scene, view: int, xyz: np.ndarray) -> np.ndarray:
    """Points [N, 3] projected into a view, as fractions of its sides [N, 2]; NaN behind the camera."""
    camera = (xyz - scene.c2w[view, :3, 3]) @ scene.c2w[view, :3, :3]
    pixels = camera @ scene.intrinsics[view].T
    with np.errstate(divide="ignore", invalid="ignore"):
        # Pixel coordinates refer to pixel centres, box coordinates to the corner of the first pixel.
        shares = (pixels[:, :2] / pixels[:, 2:] + 0.5) / np.array(scene.size(view))
    return np.where(camera[:, 2:] > 0, shares, np.nan)


def _is_in(shares: np.ndarray, box: np.ndarray) -> np.ndarray:
    """bool [N]: whether positions [N, 2] are inside a box [4]."""
    return ((shares >= box[:2]) & (shares <= box[2:])).all(axis=1)


def _central(points: np.ndarray) -> np.ndarray:
    """The points without the outermost few, which are usually outliers."""
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return points[distance <= np.quantile(distance, TRIMMED)]


@dataclass(frozen=True)
class Box:
    """A rectangle around the object on one image."""

    name: str  # of the image
    corners: tuple[float, ...]  # left, top, right, bottom
    source: str  # file or flag, for messages


def read_boxes(path: Path) -> list[Box]:
    """The boxes of a file; raises UserError if it contains none, or anything else."""
    content = read_object(path).get("boxes")
    if not isinstance(content, dict) or not content:
        raise UserError(f'{path}: holds no boxes; write {{"boxes": {{"IMG_1.jpg": [x0, y0, x1, y1]}}}}')
    boxes = []
    for name, value in content.items():
        if not isinstance(value, list) or len(value) != 4:
            raise UserError(f"{path}: {name}: is {kind(value)} and must be four numbers, left, top, right, bottom")
        boxes.append(Box(name, tuple(number(str(path), name, corner) for corner in value), str(path)))
    return boxes


def boxes_of_flags(flags: Sequence[Sequence[str]]) -> list[Box]:
    """The boxes of `--box NAME X0 Y0 X1 Y1`; raises UserError for invalid numbers and two boxes of one image."""
    boxes: list[Box] = []
    for flag in flags:
        try:
            name, left, top, right, bottom = flag
            corners = tuple(map(float, (left, top, right, bottom)))
        except ValueError as error:
            raise UserError(f"--box {' '.join(flag)}: give four numbers after the photograph's name") from error
        if name in (box.name for box in boxes):
            raise UserError(f"--box {name}: is given twice; give one rectangle for each photograph")
        boxes.append(Box(name, corners, "--box"))
    return boxes


def find_boxes(images: Path, target: Path, given: Sequence[Box], sources: Sequence[Path]) -> dict[str, np.ndarray]:
    """The boxes as fractions of their images' sides, [4] by image name.

    From flags and the folder of images; without any, from the scene folder. Raises UserError if there are none, and for
    a box that fits no image.
    """
    beside = images / BOXES_FILE
    boxes = [*(read_boxes(beside) if images.is_dir() and beside.is_file() else []), *given]
    by_name = {path.name: path for path in sources} if images.is_dir() else {}
    if not boxes and (target / BOXES_FILE).is_file():
        boxes = read_boxes(target / BOXES_FILE)
        boxes = [replace(box, name=f"{OF_SCENE}{box.name}") for box in boxes]
        by_name = {f"{OF_SCENE}{path.name}": path for path in sorted((target / "image").glob("*.png"))}
    if not boxes:
        raise UserError(
            "--masks box: there are no boxes; draw them around the object on a few photographs and write them to "
            f"{beside} or {target / BOXES_FILE}, or give --box NAME X0 Y0 X1 Y1"
        )
    return {box.name: _share(box, by_name) for box in boxes}


def _share(box: Box, by_name: Mapping[str, Path]) -> np.ndarray:
    """The corners [4] as fractions of the image's width and height, clipped to the image."""
    if box.name not in by_name:
        known = (
            f"there are {listed(list(by_name))}"
            if by_name
            else "frames of a video have no names: draw on the images of the scene folder"
        )
        raise UserError(f"{box.source}: {box.name}: no such photograph; {known}")
    width, height = upright_size(by_name[box.name])
    whole = np.array([width, height, width, height], dtype=np.float64)
    corners = np.clip(box.corners, 0.0, whole)
    if not np.isfinite(box.corners).all() or (corners[2:] - corners[:2] < LEAST_SIDE).any():
        numbers = " ".join(f"{corner:g}" for corner in box.corners)
        raise UserError(
            f"{box.source}: {box.name}: the box {numbers} contains none of the {width}x{height} pixels; give left, "
            "top, right, bottom"
        )
    return corners / whole

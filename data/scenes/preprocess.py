"""From a `ParsedScene` to a `Scene`: decodes, undistorts and reduces images, moves cameras to the working frame.

V images, each with its own size and intrinsics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from data.errors import SceneError, listed
from data.io.colors import levels_of, profile_words, range_words, small_range, stretched
from data.io.headers import ImageError
from data.io.images import alpha_of, mask_of, over_background, read_image, rgb_of
from data.io.metadata import read_metadata
from data.parsed_scene import MASK_HALF, ParsedScene, PosedImage, SparsePoints
from data.pixels import Levels, eight_bits, size_of
from data.rays import PinholeCamera
from data.scenes.backdrop import derived_masks, held_out_masks
from data.scenes.config import DatasetConfig
from data.scenes.frustum import Cameras, box_in_frame, extraction_region, parse_bbox
from data.scenes.region import SENTENCE, Region, find_region, parse_roi, require_common_view
from data.scenes.scene import Scene, Views
from data.scenes.undistort import Undistorter, lenses_of, resized

INVERTED = "the masks look inverted: white at the borders and black in the middle, where white is to mark the object"
MOST_BORDER, LEAST_MIDDLE = 0.9, 0.5  # of the pixels are white in masks that are not
OPAQUE_LEVEL = 255  # an alpha channel that has nothing else is no mask
MULTIPLIED = "the photographs look multiplied by their alpha channel: save them with straight alpha, or edges are dark"
LEAST_PARTIAL = 100  # pixels that are partly transparent, of an image that shows it

# (images, intrinsics [V, 3, 3], c2w [V, 4, 4]) -> the points, None if there are too few, and a note about them.
PointFinder = Callable[[Sequence[np.ndarray], np.ndarray, np.ndarray], tuple[SparsePoints | None, str]]


def preprocess(
    parsed: ParsedScene,
    posed_images: Sequence[PosedImage],
    conf: DatasetConfig,
    background: float = 0.0,
    training: Scene | None = None,
    find_points: PointFinder | None = None,
) -> Scene:
    """The scene of some images of `parsed`. Cheap checks run before any image is decoded.

    Args:
        background: grey in [0, 1] behind images whose alpha channel is their mask.
        training: the scene whose frame and backdrop these images share; None: see `_working_frame`.
        find_points: triangulates the SfM points of a scene that has neither points nor masks.
    Raises SceneError, ImageError for files that are inconsistent or cannot be read.
    """
    given = parse_roi(conf.roi) if conf.roi else None
    if conf.bbox:
        parse_bbox(conf.bbox)
    lenses = lenses_of(parsed, posed_images)
    images, masks, odd = _decode_all(posed_images, lenses, conf.downscale, background, training)
    images, levels = _stretched(images, training)
    metadata = [read_metadata(posed.path) for posed in posed_images]
    profiles = Counter(profile_words(own.profile) for own in metadata)
    odd += [f"{count} photographs: {words}" for words, count in profiles.items() if words]
    odd += [f"photographs of {range_words(levels)}"] if levels else []
    notes, backdrop = (*parsed.notes, *odd), None
    rotated = [posed.path.name for posed, own in zip(posed_images, metadata, strict=True) if own.orientation != 1]
    if rotated:
        words = "have an EXIF orientation, which is not applied: cameras must be those of the pixels as stored"
        notes += (f"{len(rotated)} photographs ({listed(rotated)}) {words}",)
    if masks is None and training is not None and training.backdrop is not None:
        masks, backdrop = held_out_masks(images, training.images, training.backdrop), training.backdrop
    elif masks is None and training is None and conf.masks_from_backdrop and (derived := derived_masks(images)):
        posed_images, lenses = [posed_images[view] for view in derived.views], [lenses[view] for view in derived.views]
        images = tuple(images[view] for view in derived.views)
        masks, backdrop, notes = derived.masks, derived.colour, (*notes, derived.note)
    cameras = _cameras(posed_images, lenses, [size_of(image) for image in images])
    if training is not None:
        scale_mat = training.scene_to_world
    else:
        if find_points and masks is None and parsed.points is None:
            points, note = find_points(images, cameras.intrinsics, cameras.c2w)
            parsed, notes = replace(parsed, points=points), (*notes, note)
        scale_mat, how = _working_frame(parsed, given, cameras, masks, conf.camera_outside_sphere)
        notes = (*notes, how)
    return Scene(
        images=images,
        masks=masks,
        spare_cameras=parsed.spare_cameras,
        notes=notes,
        doubts=tuple(odd),
        backdrop=backdrop,
        levels=levels,
        **_posed(parsed, posed_images, cameras, conf, scale_mat),
    )


def views_of(parsed: ParsedScene, conf: DatasetConfig, scale_mat: np.ndarray) -> Views:
    """The views of the images of `parsed` in the frame `scale_mat` [4, 4]; none is decoded. Raises as `preprocess`."""
    lenses = lenses_of(parsed, parsed.images)
    sizes = tuple(_reduced_size(lens.size, conf.downscale) for lens in lenses)
    cameras = _cameras(parsed.images, lenses, sizes)
    return Views(sizes=sizes, **_posed(parsed, parsed.images, cameras, conf, scale_mat))


def grey_photographs(
    parsed: ParsedScene, scene: Scene, downscale: int, background: float, names: Sequence[str]
) -> Iterator[tuple[PinholeCamera, np.ndarray]]:
    """Photographs of a scene in grey, uint8 [H, W], of another size than there, one decoded at a time.

    Cameras are those of `scene`, in its frame. Raises as `preprocess`.
    """
    views = {name: view for view, name in enumerate(scene.image_names) if name in names}
    posed_images = [posed for posed in parsed.images if posed.path.name in views]
    for posed, lens in zip(posed_images, lenses_of(parsed, posed_images), strict=True):
        view = views[posed.path.name]
        rgb = _stretched((_decode(posed, background)[0],), scene)[0][0]
        grey = _reduced(lens(cv2.cvtColor(eight_bits(rgb), cv2.COLOR_RGB2GRAY)), downscale)
        intrinsics = resized(scene.intrinsics[view], scene.size(view), size_of(grey))
        yield PinholeCamera(intrinsics, scene.c2w[view], *size_of(grey)), grey


def _cameras(
    posed_images: Sequence[PosedImage], lenses: Sequence[Undistorter], sizes: Sequence[tuple[int, int]]
) -> Cameras:
    """The cameras of undistorted images that are reduced to `sizes` (width, height), world frame."""
    intrinsics = [resized(lens.intrinsics, lens.size, size) for lens, size in zip(lenses, sizes, strict=True)]
    return Cameras(np.stack(intrinsics), np.stack([posed.c2w for posed in posed_images]), np.array(sizes))


def _posed(
    parsed: ParsedScene,
    posed_images: Sequence[PosedImage],
    cameras: Cameras,
    conf: DatasetConfig,
    scale_mat: np.ndarray,
) -> dict[str, Any]:
    """The members of `Posed`, in the working frame `scale_mat` [4, 4]."""
    if conf.bbox:
        low, high = box_in_frame(parse_bbox(conf.bbox), scale_mat, "dataset.bbox =")
    else:
        own = parsed.region_mat
        low, high = extraction_region(scale_mat, scale_mat if conf.roi or own is None else own)
    to_frame, points = np.linalg.inv(scale_mat), parsed.points
    c2w = to_frame @ cameras.c2w
    c2w[:, :3, :3] *= np.linalg.norm(scale_mat[:3, 0])  # its axes stay of length 1
    return {
        "name": parsed.name,
        "image_names": tuple(posed.path.name for posed in posed_images),
        "intrinsics": cameras.intrinsics,
        "c2w": c2w,
        "scene_to_world": scale_mat,
        "bbox_min": low,
        "bbox_max": high,
        "points": points and replace(points, xyz=points.xyz @ to_frame[:3, :3].T + to_frame[:3, 3]),
        "frame": parsed.frame,
    }


def _stretched(images: tuple[np.ndarray, ...], training: Scene | None) -> tuple[tuple[np.ndarray, ...], Levels | None]:
    """Images with the levels of the `training` scene, else with their own if these are a small part of 16 bits."""
    is_deep = len(images) > 0 and images[0].dtype == np.uint16
    own = small_range(map(levels_of, images)) if is_deep and training is None else None
    levels = own if training is None else training.levels
    return (tuple(stretched(image, levels) for image in images) if levels else images), levels


def _decode_all(
    posed_images: Sequence[PosedImage],
    lenses: Sequence[Undistorter],
    downscale: int,
    background: float,
    training: Scene | None,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...] | None, list[str]]:
    """(images, masks or None) as in `Scene`, and notes. Beside them, one decoded image at a time is in memory.

    Whether alpha channels are masks is decided once for a scene, by the training views.
    """
    given = None if training is None else training.masks is not None and training.backdrop is None
    images: list[np.ndarray] = []
    masks: list[np.ndarray | None] = []
    multiplied: list[bool] = []
    has_masks = given is True or any(posed.mask_path for posed in posed_images)
    is_opaque = not has_masks
    for posed, lens in zip(posed_images, lenses, strict=True):
        try:
            rgb, mask, looks_multiplied = _decode(posed, background)
            multiplied += [] if looks_multiplied is None else [looks_multiplied]
            is_opaque = is_opaque and (given is False or mask is None or mask.min() == OPAQUE_LEVEL)
            if has_masks and mask is None:  # unmasked beside masked ones: all object
                mask = np.full(rgb.shape[:2], OPAQUE_LEVEL, np.uint8)
            rgb, mask = _reduced(lens(rgb), downscale), None if mask is None else _reduced(lens(mask), downscale)
        except MemoryError as error:
            raise ImageError(
                f"{posed.path}: the {len(posed_images)} images do not fit into memory; set dataset.downscale = 2"
            ) from error
        if images and rgb.dtype != images[0].dtype:
            raise ImageError(
                f"{posed.path}: has {rgb.itemsize * 8} bits per channel and {posed_images[0].path.name} "
                f"{images[0].itemsize * 8}; save all with the same depth"
            )
        images.append(rgb)
        masks.append(mask)
    notes = [MULTIPLIED] if multiplied and all(multiplied) else []
    if is_opaque:
        return tuple(images), None, notes
    for posed, mask in zip(posed_images, masks, strict=True):
        if (mask is None) != (masks[0] is None):
            had = "no alpha channel" if mask is None else "an alpha channel"
            raise ImageError(
                f"{posed.path}: has {had}, unlike {posed_images[0].path.name}; save all in the same way, or give masks"
            )
    present = tuple(mask for mask in masks if mask is not None)
    return tuple(images), present, [*notes, *([INVERTED] if _look_inverted(present) else [])]


def _look_inverted(masks: Sequence[np.ndarray]) -> bool:
    """Whether the masks of most views are white at the borders and black in the middle half."""
    votes = []
    for mask in masks:
        white, (height, width) = mask > MASK_HALF, mask.shape
        border = np.concatenate([white[0], white[-1], white[:, 0], white[:, -1]])
        middle = white[height // 4 : -(height // 4) or None, width // 4 : -(width // 4) or None]
        votes.append(border.mean() > MOST_BORDER and middle.mean() < LEAST_MIDDLE)
    return float(np.mean(votes)) > 0.5


def _decode(posed: PosedImage, background: float) -> tuple[np.ndarray, np.ndarray | None, bool | None]:
    """Colours [H, W, 3] and mask [H, W] as stored; the mask is the mask file, else the alpha channel, else None.

    Also whether the colours look multiplied by the alpha channel; None: it does not show.
    """
    pixels = read_image(posed.path)
    rgb = np.ascontiguousarray(rgb_of(pixels))
    if posed.mask_path is not None:
        return rgb, mask_of(read_image(posed.mask_path)), None
    alpha = alpha_of(pixels)
    if alpha is None:
        return rgb, None, None
    shows = np.count_nonzero((alpha > 0) & (alpha < OPAQUE_LEVEL)) >= LEAST_PARTIAL
    return over_background(rgb, alpha, background), alpha, bool((rgb <= pixels[..., 3:]).all()) if shows else None


def _reduced(pixels: np.ndarray, downscale: int) -> np.ndarray:
    """The image with width and height divided by `downscale`, by averaging areas; contiguous."""
    if downscale == 1:
        return np.ascontiguousarray(pixels)
    return cv2.resize(pixels, _reduced_size(size_of(pixels), downscale), interpolation=cv2.INTER_AREA)


def _reduced_size(size: tuple[int, int], downscale: int) -> tuple[int, int]:
    """(width, height) of an image after `_reduced`."""
    width, height = (max(1, side // downscale) for side in size)
    return width, height


def _working_frame(
    parsed: ParsedScene,
    given: Region | None,
    cameras: Cameras,
    masks: Sequence[np.ndarray] | None,
    cameras_outside: bool,
) -> tuple[np.ndarray, str]:
    """The matrix [4, 4] from the unit sphere to the world, and a sentence on its source.

    It is that of `dataset.roi`, else that of `parsed`, else estimated from masks, SfM points or cameras.
    """
    own = None if given else parsed.scale_mat  # it may contain a rotation, which a `Region` cannot
    try:
        if own is not None:
            radius = np.cbrt(np.linalg.det(own[:3, :3]))
            region = Region(own[:3, 3], radius, f"{SENTENCE}: from {parsed.source.name}")
        else:
            region = given or find_region(cameras, masks, parsed.points, cameras_outside)
        require_common_view(region, cameras)
    except SceneError as error:
        raise SceneError(f"{parsed.source}: {error}") from error
    return region.scale_mat if own is None else own, region.how

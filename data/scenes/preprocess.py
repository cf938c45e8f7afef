"""From a `ParsedScene` to a `Scene`: decodes, undistorts and reduces images, moves cameras to the working frame.

V images, each with its own size and intrinsics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import cv2
import numpy as np

from data.cameras import LONGEST_FOCAL, SHORTEST_FOCAL, SMALLEST_ROW_VOLUME, row_volume
from data.errors import SceneError, listed
from data.io.headers import read_exif
from data.io.images import ImageError, alpha_of, image_size, mask_of, over_background, read_image, rgb_of, size_of
from data.parsed_scene import MASK_HALF, ParsedScene, PosedImage, SparsePoints
from data.scenes.backdrop import derived_masks, held_out_masks
from data.scenes.config import DatasetConfig
from data.scenes.extraction_box import box_in_frame, extraction_region, parse_bbox
from data.scenes.region import SENTENCE, Region, find_region, parse_roi, require_common_view
from data.scenes.scene import Scene
from data.scenes.undistort import Undistorter, resized

INVERTED = "the masks look inverted: white at the borders and black in the middle, where white is to mark the object"
MOST_BORDER, LEAST_MIDDLE = 0.9, 0.5  # of the pixels are white in masks that are not
OPAQUE = 255  # an alpha channel that has nothing else is no mask
MULTIPLIED = "the photographs look multiplied by their alpha channel: save them with straight alpha, or edges are dark"
LEAST_PARTIAL = 100  # pixels that are partly transparent, of an image that shows it
SAME_INTRINSICS = 1e-4  # relative and in pixels; above the rounding of float32

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
    box = parse_bbox(conf.bbox) if conf.bbox else None
    sizes = _stored_sizes(posed_images)
    _require_focal_lengths(parsed, posed_images, sizes)
    lenses = undistorters(posed_images, sizes)
    _require_invertible(parsed, posed_images, lenses)
    images, masks, odd = _decode_all(posed_images, lenses, conf.downscale, background, training)
    notes, backdrop = (*parsed.notes, *odd, *_turned(posed_images)), None
    if masks is None and training is not None and training.backdrop is not None:
        masks, backdrop = held_out_masks(images, training.images, training.backdrop), training.backdrop
    elif masks is None and training is None and conf.masks_from_backdrop and (derived := derived_masks(images)):
        posed_images, lenses = [posed_images[view] for view in derived.views], [lenses[view] for view in derived.views]
        images = tuple(images[view] for view in derived.views)
        masks, backdrop, notes = derived.masks, derived.colour, (*notes, derived.note)
    reduced = [size_of(image) for image in images]
    intrinsics = np.stack([resized(lens.intrinsics, lens.size, to) for lens, to in zip(lenses, reduced, strict=True)])
    poses = np.stack([posed.c2w for posed in posed_images])
    if training is not None:
        scale_mat = training.scene_to_world
    else:
        if find_points and masks is None and parsed.points is None:
            points, note = find_points(images, intrinsics, poses)
            parsed, notes = replace(parsed, points=points), (*notes, note)
        scale_mat, how = _working_frame(parsed, given, intrinsics, poses, reduced, masks, conf.camera_outside_sphere)
        notes = (*notes, how)
    object_mat = scale_mat if given or parsed.region_mat is None else parsed.region_mat
    bounds = extraction_region(scale_mat, object_mat) if box is None else box_in_frame(box, scale_mat, "dataset.bbox =")
    return Scene(
        name=parsed.name,
        image_names=tuple(posed.path.name for posed in posed_images),
        images=images,
        masks=masks,
        intrinsics=intrinsics,
        c2w=_into_frame(poses, scale_mat),
        scene_to_world=scale_mat,
        bbox_min=bounds[0],
        bbox_max=bounds[1],
        points=_points_in_frame(parsed.points, scale_mat),
        spare_cameras=parsed.spare_cameras,
        notes=notes,
        doubts=tuple(odd),
        backdrop=backdrop,
        frame=parsed.frame,
    )


def _stored_sizes(posed_images: Sequence[PosedImage]) -> list[tuple[int, int]]:
    """(width, height) of each image file; raises ImageError if its mask or images of the same camera differ in size."""
    sizes = [posed.size or image_size(posed.path) for posed in posed_images]
    first: dict[tuple[int, int], PosedImage] = {}
    for posed, size in zip(posed_images, sizes, strict=True):
        first.setdefault(size, posed)
        for other_size, other in first.items():
            if posed.lens.size is None and other_size != size and _same_intrinsics(posed, other):
                raise ImageError(
                    f"{posed.path}: is {_size_text(size)} pixels and {other.path.name} {_size_text(other_size)}, with "
                    "the same intrinsics; photographs of one camera must have one size"
                )
        if posed.mask_path is not None and (mask_size := image_size(posed.mask_path)) != size:
            raise ImageError(
                f"{posed.mask_path}: is {_size_text(mask_size)} pixels and its photograph {posed.path.name} "
                f"{_size_text(size)}; both must have one size"
            )
    return sizes


def _turned(posed_images: Sequence[PosedImage]) -> list[str]:
    """A note on photographs that viewers turn by their EXIF orientation."""
    names = [posed.path.name for posed in posed_images if read_exif(posed.path)[0] != 1]
    words = "have an EXIF orientation, which is not applied: cameras must be those of the pixels as stored"
    return [f"{len(names)} photographs ({listed(names)}) {words}"] if names else []


def _same_intrinsics(a: PosedImage, b: PosedImage) -> bool:
    return np.allclose(a.lens.intrinsics, b.lens.intrinsics, rtol=SAME_INTRINSICS, atol=SAME_INTRINSICS)


def _size_text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def undistorters(posed_images: Sequence[PosedImage], sizes: Sequence[tuple[int, int]]) -> list[Undistorter]:
    """An undistorter for each image, which has a size (width, height); images of one lens share it.

    Raises ImageError for a size or a distortion that does not fit.
    """
    known: dict[tuple, Undistorter] = {}
    found = []
    for posed, size in zip(posed_images, sizes, strict=True):
        key = (*posed.lens.key, size)
        if key not in known:
            try:
                known[key] = Undistorter(posed.lens, size)
            except ValueError as error:
                raise ImageError(f"{posed.path}: {error}; correct the image or its camera") from error
        found.append(known[key])
    return found


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
            is_opaque = is_opaque and (given is False or mask is None or mask.min() == OPAQUE)
            if has_masks and mask is None:  # unmasked beside masked ones: all object
                mask = np.full(rgb.shape[:2], OPAQUE, np.uint8)
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
    shows = np.count_nonzero((alpha > 0) & (alpha < OPAQUE)) >= LEAST_PARTIAL
    return over_background(rgb, alpha, background), alpha, bool((rgb <= pixels[..., 3:]).all()) if shows else None


def _reduced(pixels: np.ndarray, downscale: int) -> np.ndarray:
    """The image with width and height divided by `downscale`, by averaging areas; contiguous."""
    if downscale == 1:
        return np.ascontiguousarray(pixels)
    height, width = (max(1, side // downscale) for side in pixels.shape[:2])
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def _working_frame(
    parsed: ParsedScene,
    given: Region | None,
    intrinsics: np.ndarray,
    poses: np.ndarray,
    sizes: Sequence[tuple[int, int]],
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
            region = given or find_region(intrinsics, poses, np.array(sizes), masks, parsed.points, cameras_outside)
        require_common_view(region, intrinsics, poses, np.array(sizes))
    except SceneError as error:
        raise SceneError(f"{parsed.source}: {error}") from error
    return region.scale_mat if own is None else own, region.how


def _into_frame(poses: np.ndarray, scale_mat: np.ndarray) -> np.ndarray:
    """Camera-to-working-frame poses [V, 4, 4] with orthonormal axes; `scale_mat` [4, 4] is a similarity."""
    moved = np.linalg.inv(scale_mat) @ poses
    moved[:, :3, :3] *= np.linalg.norm(scale_mat[:3, 0])
    return moved


def _require_focal_lengths(
    parsed: ParsedScene, posed_images: Sequence[PosedImage], sizes: Sequence[tuple[int, int]]
) -> None:
    """Raises SceneError for a focal length that is too short, too long, NaN or infinite."""
    for posed, size in zip(posed_images, sizes, strict=True):
        width, height = posed.lens.size or size
        focal = np.abs(np.diag(posed.lens.intrinsics)[:2])
        longest = LONGEST_FOCAL * max(width, height)
        for wrong, words in ((~(focal <= longest), "too long"), (focal < SHORTEST_FOCAL * width, "too short")):
            if wrong.any():
                raise SceneError(
                    f"{parsed.source}: the lens of {posed.path.name} cannot be used: its focal length of "
                    f"{focal[wrong][0]:.3g} pixels is {words} for an image of {width}x{height}; correct it or leave "
                    "that view out"
                )


def _require_invertible(parsed: ParsedScene, posed_images: Sequence[PosedImage], lenses: Sequence[Undistorter]) -> None:
    """Raises SceneError for a lens whose intrinsics cannot be inverted or are not finite."""
    for posed, lens in zip(posed_images, lenses, strict=True):
        if not row_volume(lens.intrinsics) >= SMALLEST_ROW_VOLUME:
            raise SceneError(
                f"{parsed.source}: the lens of {posed.path.name} cannot be used: its focal length is too short; "
                "correct it or leave that view out"
            )


def _points_in_frame(points: SparsePoints | None, scale_mat: np.ndarray) -> SparsePoints | None:
    if points is None:
        return None
    to_frame = np.linalg.inv(scale_mat)
    return replace(points, xyz=points.xyz @ to_frame[:3, :3].T + to_frame[:3, 3])

"""The format of the published NeuS: image/*, optional mask/*, and npz files with world_mat_i and scale_mat_i; read and
written.

world_mat_i [4, 4] or [3, 4] projects world points to pixels of image i, scale_mat_i [4, 4] maps the unit sphere to the
world. docs/formats.md describes the folder. Behaviour of models/dataset.py of https://github.com/Totoro97/NeuS at
commit 6e0a230, in float64.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.cameras import affine, decompose_projection
from data.errors import INVALID, DamagedError, SceneError
from data.io.files import similar_names, write_result
from data.io.images import image_size, left_out, list_images, require_images, write_image
from data.io.named_files import require_no_gap, require_same_numbers
from data.io.untrusted import read_members, read_object
from data.parsed_scene import CameraFiles, Lens, ParsedScene, PosedImage, Reference, SparsePoints, WorldFrame
from data.scenes.readers.points import read_points

if TYPE_CHECKING:
    from data.scenes.scene import Scene

CAMERA_FILE = "cameras_sphere.npz"  # as written
POINTS_FILE = "sparse/points.ply"  # not in the published format: SfM points, world frame

FRAME_FILE = "frame.json"  # not in the published format: up and unit of the world frame
REFERENCE_FILE = "reference.json"  # nor this: its map grid

CAMERA_MATRIX = re.compile(r"(world|scale|camera)_mat_[0-9]{1,9}")
NO_INTRINSICS = 1e-3  # of the product of a rotation with its transpose
LEAST_FOCAL_PIXELS = 16  # of a focal length in pixels; DVR counts in halves of the image
FROM_MIDDLE = 0.25  # of a principal point in parts of the image
# Camera files are often stored in float32 after a few products: equal numbers differ by about 1e-6.
MATRIX_TOLERANCE = 1e-4


def matches(folder: Path) -> str:
    """The folder of images and the first camera file; "" where one of them is missing."""
    cameras = sorted(entry.name for entry in folder.glob("*.npz"))
    return f"image/ with {cameras[0]}" if cameras and (folder / "image").is_dir() else ""


def matches_in_part(folder: Path) -> str:
    """The folder of images or the camera file of a scene that lacks the other; "" where there is neither."""
    if (folder / "image").is_dir():
        return "image/"
    return min((entry.name for entry in folder.glob("cameras*.npz")), default="")


def read_neus(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene `folder`; no image is opened.

    Images with different cameras may differ in size. Raises SceneError for missing or inconsistent files.
    """
    if not folder.is_dir():
        raise SceneError(f"{folder}: no such folder{similar_names(folder)}; dataset.data_dir names the scene folder")
    if not (folder / "image").is_dir():
        present = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise SceneError(
            f"{folder}: has no folder image/ with the photographs (it contains {present}); name their folder image/"
        )
    image_paths = require_images(folder / "image")
    masks: Sequence[Path | None] = [None] * len(image_paths)
    if (folder / "mask").exists():
        masks = list_images(folder / "mask")
        if len(masks) != len(image_paths):
            raise SceneError(
                f"{folder / 'mask'}: contains {len(masks)} masks for {len(image_paths)} photographs; "
                "provide one for each, or remove the folder and train with train.mask_weight = 0"
            )
        require_same_numbers(image_paths, masks)
    source = folder / files.render_cameras_name
    matrices = _read_matrices(source, "dataset.render_cameras_name", CAMERA_MATRIX)
    world_mats, scale_mat = _checked_cameras(source, matrices, image_paths)
    spare = next(index for index in itertools.count() if f"world_mat_{index}" not in matrices) - len(image_paths)
    require_no_gap(source, image_paths, len(image_paths) + spare)
    cameras, frame = [], read_frame(folder / FRAME_FILE)
    for index, projection in enumerate(world_mats):
        try:
            cameras.append(decompose_projection(projection))
        except ValueError as error:
            raise SceneError(
                f"{source}: world_mat_{index} is not a camera matrix: {error}; correct it or leave that view out"
            ) from error
    notes, count = list[str](), len(image_paths)
    if spare > 0:
        notes.append(
            f"{source.name}: has {count + spare} cameras for {count} photographs; the first {count} are used in order, "
            "which is correct only if the last photographs are the missing ones"
        )
    notes += [note for kind in ("image", "mask") if (folder / kind).is_dir() for note in left_out(folder / kind)]
    if frame is not None:
        notes += [*filter(None, [frame.left_out]), *frame.notes]
    return ParsedScene(
        name=folder.resolve().name,
        source=source,
        images=tuple(
            PosedImage(path, Lens(intrinsics), c2w, mask)
            for path, (intrinsics, c2w), mask in zip(image_paths, cameras, masks, strict=True)
        ),
        points=read_points(folder / POINTS_FILE) if (folder / POINTS_FILE).is_file() else None,
        scale_mat=scale_mat,
        region_mat=_read_object_matrix(folder / files.object_cameras_name, scale_mat is None),
        spare_cameras=spare,
        frame=frame,
        notes=tuple(notes),
    )


def read_frame(path: Path) -> WorldFrame | None:
    """What the file, and the one of the map grid beside it, say of the world frame; None if there is none.

    Raises SceneError for a damaged file.
    """
    if not path.is_file():
        return None
    content, source = read_object(path), path
    grid, reference = path.with_name(REFERENCE_FILE), None
    try:
        error = content.get("scale_error")
        frame = WorldFrame(
            up_source=str(content.get("up_source") or ""),
            scale_source=str(content.get("scale_source") or ""),
            scale_error=None if error is None else float(error),
            camera_errors={str(name): float(value) for name, value in content.get("camera_errors", {}).items()},
            photographs={str(image): str(name) for image, name in content.get("photographs", {}).items()},
            without_camera=tuple(map(str, content.get("without_camera", ()))),
            notes=tuple(map(str, content.get("notes", ()))),
            doubt=str(content.get("doubt", "")),
            limit=str(content.get("limit", "")),
        )
        if grid.is_file():
            content, source = read_object(grid), grid
            reference = replace(
                Reference(**content),
                rotation=tuple(map(tuple, np.array(content["rotation"], float).tolist())),
                offset=tuple(np.array(content["offset"], float).reshape(3).tolist()),
                accuracy=tuple(content["accuracy"]),
                left_out=tuple(content["left_out"]),
            )
            _similarity(grid, "scale * rotation", reference.without_offset)
    except INVALID as failure:
        raise SceneError(f"{source}: is damaged; run --mode prepare again, or remove it") from failure
    return replace(frame, reference=reference)


def _checked_cameras(
    path: Path, matrices: Mapping[str, np.ndarray], image_paths: Sequence[Path]
) -> tuple[np.ndarray, np.ndarray | None]:
    """world_mats [V, 3, 4] of the images, and their scale_mat [4, 4], None without any; raises SceneError.

    A scale_mat_0 alone is that of all images.
    """
    count = len(image_paths)
    given = [index for index in range(count) if f"scale_mat_{index}" in matrices]
    for kind, indices in (("world", range(count)), ("scale", range(count) if given not in ([], [0]) else ())):
        if missing := [index for index in indices if f"{kind}_mat_{index}" not in matrices]:
            raise SceneError(
                f"{path}: has no {kind}_mat_{missing[0]}; the scene has {count} photographs and needs one for each; "
                "number the cameras from 0, in the order of the photographs"
            )
    scale_mats = [_similarity(path, f"scale_mat_{index}", matrices[f"scale_mat_{index}"]) for index in given]
    for index, matrix in zip(given, scale_mats, strict=True):
        if np.abs(matrix - scale_mats[0]).max() > MATRIX_TOLERANCE * np.cbrt(np.linalg.det(scale_mats[0][:3, :3])):
            raise SceneError(f"{path}: scale_mat_{index} differs from scale_mat_0; all views must have the same one")
    world_mats = [_world_mat(path, matrices, index, image) for index, image in enumerate(image_paths)]
    return np.stack(world_mats), scale_mats[0] if scale_mats else None


def _world_mat(path: Path, matrices: Mapping[str, np.ndarray], index: int, image: Path) -> np.ndarray:
    """The projection [3, 4] of an image: world_mat, times camera_mat where that has the intrinsics (IDR, DVR)."""
    key = f"world_mat_{index}"
    world = _checked(path, key, matrices[key], rows=(3, 4))[:3]
    rotation = world[:, :3] / (np.linalg.norm(world[2, :3]) or 1.0)
    if np.abs(rotation @ rotation.T - np.eye(3)).max() > NO_INTRINSICS:
        return world
    key = f"camera_mat_{index}"
    if key not in matrices:
        raise SceneError(f"{path}: world_mat_{index} has no intrinsics, and there is no {key}; multiply them into it")
    matrix = matrices[key]
    square = matrix.shape == (3, 3)
    intrinsics = _checked(path, key, np.pad(matrix, ((0, 0), (0, 1))) if square else matrix, rows=(3, 4))[:3, :3]
    if np.abs(intrinsics[0, 0]) < LEAST_FOCAL_PIXELS:
        intrinsics = _in_pixels(path, key, intrinsics, np.array(image_size(image)))
    return intrinsics @ world


def _in_pixels(path: Path, key: str, intrinsics: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Intrinsics for an image of `size` (width, height), from ones divided by it, or with -1 to 1 from pixel to pixel.

    The principal point, near the middle of the image, tells which: 0.5, or 0. Raises SceneError for another one.
    """
    away = np.abs(intrinsics[:2, 2])
    if away.max() < FROM_MIDDLE:
        scale = shift = (size - 1) / 2
    elif np.abs(away - 0.5).max() < FROM_MIDDLE:
        scale, shift = size, np.zeros(2)
    else:
        centre = intrinsics[:2, 2].tolist()
        raise SceneError(f"{path}: {key} is not in pixels, and its principal point {centre} is neither near 0 nor 0.5")
    return np.array([[scale[0], 0, shift[0]], [0, scale[1], shift[1]], [0, 0, 1]]) @ intrinsics


def _read_object_matrix(path: Path, is_optional: bool) -> np.ndarray | None:
    """scale_mat_0 of the object camera file: any invertible affine map, since the mesh region may be any box."""
    key = "scale_mat_0"
    matrices = _read_matrices(path, "dataset.object_cameras_name", re.compile(key))
    if key not in matrices and is_optional:
        return None
    if key not in matrices:
        raise SceneError(f"{path}: has no {key}, which bounds the region the mesh is extracted from")
    matrix = _affine(path, key, matrices[key])
    if np.linalg.matrix_rank(matrix[:3, :3]) < 3:
        raise SceneError(f"{path}: {key} is singular and bounds no region; correct it")
    return matrix


def _read_matrices(path: Path, conf_key: str, wanted: re.Pattern) -> dict[str, np.ndarray]:
    """The arrays of the npz file whose names match `wanted`; raises SceneError."""
    if not path.is_file():
        raise SceneError(f"{path}: no such camera file; {conf_key} names it, relative to dataset.data_dir")
    try:
        return read_members(path, wanted)
    except (DamagedError, OSError) as error:
        raise SceneError(f"{path}: cannot be read as an npz file of numbers ({error}); write it again") from error


def _checked(path: Path, key: str, matrix: np.ndarray, rows: tuple[int, ...]) -> np.ndarray:
    """`matrix` as float64 [one of rows, 4] of finite numbers; raises SceneError for anything else."""
    if matrix.dtype.kind not in "fiu":
        raise SceneError(f"{path}: {key} contains {matrix.dtype} and not real numbers; write it again")
    if matrix.shape not in [(count, 4) for count in rows]:
        wanted = " or ".join(f"[{count}, 4]" for count in rows)
        raise SceneError(f"{path}: {key} has shape {list(matrix.shape)} and must be {wanted}; write it again")
    if not np.isfinite(matrix).all():
        raise SceneError(f"{path}: {key} contains NaN or infinite numbers; correct it or leave that view out")
    return matrix.astype(np.float64)


def _affine(path: Path, key: str, matrix: np.ndarray) -> np.ndarray:
    matrix = _checked(path, key, matrix, rows=(4,))
    if not np.allclose(matrix[3], [0, 0, 0, 1], rtol=0, atol=MATRIX_TOLERANCE):
        raise SceneError(f"{path}: the last row of {key} must be 0 0 0 1 and is {matrix[3].tolist()}; correct it")
    return matrix


def _similarity(path: Path, key: str, matrix: np.ndarray) -> np.ndarray:
    """`matrix` [4, 4] in float64; raises SceneError unless it is a similarity."""
    matrix = _affine(path, key, matrix)
    linear = matrix[:3, :3]
    squares = linear.T @ linear
    squared_scale = np.trace(squares) / 3
    uniform = np.abs(squares - squared_scale * np.eye(3)).max() <= MATRIX_TOLERANCE * squared_scale
    if not uniform or np.linalg.det(linear) <= 0:
        raise SceneError(
            f"{path}: {key} is not a similarity (a rotation, one positive scale and a translation), "
            "so the unit sphere would not map to a sphere; correct it"
        )
    return matrix


def write_neus_scene(folder: Path, scene: Scene) -> None:
    """Write image/000.png ..., mask/ if the scene has masks, the sparse points and the camera file, in that order.

    The images must be uint8. The world frame of the files is that of `scene.scene_to_world`. Raises UserError if
    writing fails.
    """
    for kind in ("image", "mask") if scene.masks is not None else ("image",):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for view, image in enumerate(scene.images):
        write_image(folder / "image" / f"{view:03d}.png", image)
        if scene.masks is not None:
            write_image(folder / "mask" / f"{view:03d}.png", scene.masks[view])
    if scene.points is not None:
        write_points(folder / POINTS_FILE, scene.points, scene.scene_to_world)
    if scene.frame is not None:
        photographs = {f"{view:03d}.png": name for view, name in enumerate(scene.photographs)}
        frame = asdict(scene.frame) | {"photographs": photographs}
        if (reference := frame.pop("reference")) is not None:
            write_result(folder / REFERENCE_FILE, json.dumps(reference, indent=1).encode())
        write_result(folder / FRAME_FILE, json.dumps(frame, indent=1).encode())
    content = io.BytesIO()
    matrices: dict[str, Any] = camera_matrices(scene.intrinsics, scene.c2w, scene.scene_to_world)
    np.savez(content, **matrices)
    write_result(folder / CAMERA_FILE, content.getvalue())


def camera_matrices(intrinsics: np.ndarray, c2w: np.ndarray, scene_to_world: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays of the camera file: for each view i camera_mat_i, world_mat_i, scale_mat_i [4, 4] and their inverses.

    Args:
        intrinsics: [V, 3, 3].
        c2w: [V, 4, 4], camera to working frame.
        scene_to_world: [4, 4], working frame to world, a similarity.

    world_mat_i = K [R | t] projects world points to pixels, scale_mat_i is `scene_to_world`. The names and the inverses
    are those of the published preprocess_custom_data/colmap_preprocess/gen_cameras.py, https://github.com/Totoro97/NeuS
    at commit 6e0a230.
    """
    scale = np.cbrt(np.linalg.det(scene_to_world[:3, :3]))
    matrices = {}
    for view, (intrinsic, pose) in enumerate(zip(intrinsics, c2w, strict=True)):
        world_pose = scene_to_world @ pose
        world_pose[:3, :3] /= scale  # a rotation again
        camera = affine(intrinsic)
        for kind, matrix in (
            ("camera_mat", camera),
            ("world_mat", camera @ np.linalg.inv(world_pose)),
            ("scale_mat", scene_to_world),
        ):
            matrices[f"{kind}_{view}"] = matrix
            matrices[f"{kind}_inv_{view}"] = np.linalg.inv(matrix)
    return matrices


def write_points(path: Path, points: SparsePoints, to_world: np.ndarray) -> None:
    """Write the coloured points as a binary PLY in world coordinates; raises UserError if writing fails."""
    import trimesh  # takes half a second, and reading does not need it

    xyz = points.xyz @ to_world[:3, :3].T + to_world[:3, 3]
    cloud = trimesh.PointCloud(xyz, colors=points.rgb)
    write_result(path, cloud.export(file_type="ply"))

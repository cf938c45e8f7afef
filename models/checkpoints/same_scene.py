"""Whether a checkpoint can be used with a scene: the same data, region of interest, and masks or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from data.io.images import to_float
from data.scenes.scene import Scene
from models.checkpoints.ours import Checkpoint, CheckpointError
from models.checkpoints.state import DATA
from models.methods.conf import ExperimentConfig

FRAME_KEY, DATA_KEY = "scene_to_world", "data"  # in the state of a checkpoint
# Largest differences of the numbers of `data_state` between machines: levels of 255; radii, parts of an axis and of the
# focal length in widths; radii.
TOLERANCES = dict(zip(DATA, (1.0, 1.0, 0.02, 0.1), strict=True))
STRIDE = 5  # between the pixels of which the mean is taken
HULL, BACKDROP = "hull", "backdrop"  # buffers of occupancy sampling: its region, and the backdrop of derived masks
FRAME_TOLERANCE = 1e-3  # of the sphere's radius; smaller differences are invisible
BACKGROUND = "background_density"  # network of occupancy sampling without masks


def scene_state(scene: Scene) -> dict[str, Any]:
    """The entries of a checkpoint's state for `require_same_frame` and `require_same_data`."""
    return {FRAME_KEY: scene.scene_to_world.tolist(), DATA_KEY: _data(scene)}


def _data(scene: Scene) -> dict[str, list[float]]:
    """Numbers by which changed data are noticed, [] for masks and points that the scene lacks."""
    widths = np.array([image.shape[1] for image in scene.images])
    focals = scene.intrinsics[:, 0, 0] / widths
    cameras = np.concatenate([scene.c2w[:, :3, 3], scene.c2w[:, :3, 2], focals[:, None]], axis=1)
    points = [] if scene.points is None else [*scene.points.xyz.mean(axis=0), *scene.points.xyz.std(axis=0)]
    found = {"photographs": _levels(scene.images), "masks": _levels(scene.masks or ()), "cameras": cameras.ravel()}
    return {name: [round(float(value), 4) for value in values] for name, values in (found | {"points": points}).items()}


def _levels(images: Sequence[np.ndarray]) -> list[float]:
    """The mean level of each image, of 255."""
    return [255.0 * float(to_float(image[::STRIDE, ::STRIDE]).mean()) for image in images]


def require_same_data(checkpoint: Checkpoint, scene: Scene) -> None:
    """Raises CheckpointError if photographs, masks, cameras or points are not those that were trained on.

    Checkpoints of the published code, and those before this check, do not say.
    """
    trained, now = checkpoint.state.get(DATA_KEY, {}), _data(scene)
    changed = [name for name, values in trained.items() if not _is_same(values, now.get(name, []), TOLERANCES[name])]
    if changed:
        raise CheckpointError(
            f"the {' and '.join(changed)} of {scene.name} changed since the checkpoint of step {checkpoint.step}: "
            "restore them, or continue with the changed ones by --checkpoint FILE --overwrite instead of --is_continue"
        )


def _is_same(trained: Sequence[float], now: Sequence[float], tolerance: float) -> bool:
    return len(trained) == len(now) and bool(np.all(np.abs(np.subtract(trained, now)) <= tolerance))


def require_same_frame(checkpoint: Checkpoint, scene: Scene) -> None:
    """Raises CheckpointError if the networks were trained with another region of interest.

    The region may change if it is estimated from other images. Checkpoints of the published code do not store it.
    """
    trained = np.array(checkpoint.state.get(FRAME_KEY, scene.scene_to_world), dtype=np.float64)
    radius = np.linalg.norm(trained[:3, 0])
    if np.abs(trained - scene.scene_to_world).max() > FRAME_TOLERANCE * radius:
        sphere = " ".join(f"{value:.9g}" for value in (*trained[:3, 3], radius))
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} was trained with another region of interest than that of "
            f'{scene.name}; pass --roi "{sphere}", the one it was trained with, or train again with --overwrite if the '
            "scene was prepared again"
        )


def require_same_masks(checkpoint: Checkpoint, scene: Scene) -> None:
    """Raises CheckpointError if only one of training and scene has masks that were derived from a backdrop.

    Such masks bound the occupied cells, which checkpoints contain, and replace the background.
    """
    if HULL not in checkpoint.buffers:
        return
    was_derived = BACKDROP in checkpoint.buffers
    is_derived = scene.backdrop is not None
    if was_derived != is_derived:
        how = "with" if was_derived else "without"
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} was trained {how} masks derived from the backdrop of "
            f"{scene.name}; pass --set dataset.masks_from_backdrop={was_derived}, or train again"
        )


def require_same_background(checkpoint: Checkpoint, scene: Scene, conf: ExperimentConfig) -> None:
    """Raises CheckpointError if only one of training and conf uses masks, which replace the background."""
    if HULL not in checkpoint.buffers or not hasattr(conf.model, "background"):
        return
    used, uses = BACKGROUND not in checkpoint.tensors, scene.masks is not None and conf.train.mask_weight > 0
    if used == uses:
        return
    weight = f"train.mask_weight = {conf.train.mask_weight:g}"
    if uses:
        words = f"without masks, and {weight} uses those of {scene.name}; pass --set train.mask_weight=0"
    elif scene.masks is not None:
        words = f"with masks, and {weight} does not use them; pass --set train.mask_weight= with that of its training"
    else:
        words = f"with masks, and {scene.name} has none; restore them"
    raise CheckpointError(f"the checkpoint of step {checkpoint.step} was trained {words}, or train again")

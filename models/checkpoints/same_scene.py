"""Whether a checkpoint can be used with a scene: the same region of interest, and masks or none as in its training."""

from __future__ import annotations

from typing import Any

import numpy as np

from data.scenes.scene import Scene
from models.checkpoints.ours import Checkpoint, CheckpointError
from models.methods.conf import ExperimentConfig

FRAME_KEY = "scene_to_world"  # in the state of a checkpoint
HULL, BACKDROP = "hull", "backdrop"  # buffers of occupancy sampling: its region, and the backdrop of derived masks
FRAME_TOLERANCE = 1e-3  # of the sphere's radius; smaller differences are invisible
BACKGROUND = "background_density"  # network of occupancy sampling without masks


def frame_state(scene: Scene) -> dict[str, Any]:
    """The entry of a checkpoint's state for `require_same_frame`."""
    return {FRAME_KEY: scene.scene_to_world.tolist()}


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

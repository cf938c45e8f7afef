"""Have all ranks do the same work, and check it: inputs before the first step, weights at each checkpoint."""

from __future__ import annotations

import platform
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UserError, listed
from data.scenes.scene import Scene
from models.checkpoints.ours import Checkpoint
from models.fields.state import export_state, import_state
from models.machine import backend
from models.machine.ranks.ranks import MACHINE, Ranks, differences
from models.methods.conf import ExperimentConfig, flat, parse_config
from models.methods.device_values import as_trained
from models.methods.protocol import Model
from models.training.trainer import Trainer

# Keys with paths, which may differ between machines. The contents of the paths are compared instead.
OF_A_MACHINE = ("general.base_exp_dir", "general.recording", "dataset.data_dir", "dataset.test_dir")
OF_A_MACHINE += ("dataset.reference_mesh", "train.memory_limit")
PROGRAM = Path(__file__).resolve().parents[2]


def require_agreement(conf: ExperimentConfig, scene: Scene, ranks: Ranks) -> None:
    """Raises UserError on all ranks, naming the differences, if conf, scene, program or device differ."""
    keys = {name: value for name, value in flat(conf).items() if name not in OF_A_MACHINE}
    own = {
        MACHINE: platform.node(),
        "the program": program_digest(PROGRAM),
        "numpy": np.__version__,
        "the device": backend.device_info().name,
        "the scene": scene_digest(scene),
        **keys,
    }
    found = differences(ranks.everyone(own))
    if found:
        raise UserError(
            f"the ranks differ: {listed(found, 3)}; start all of them with the same program, conf and scene"
        )


def agreed(
    conf: ExperimentConfig, checkpoint: Checkpoint | None, scene: Scene, ranks: Ranks
) -> tuple[ExperimentConfig, Checkpoint | None]:
    """The conf with the values of the device that the checkpoint of rank 0 was made on, and this checkpoint.

    Only rank 0 has read it before. Raises UserError as `require_agreement`.
    """
    checkpoint = ranks.broadcast(checkpoint)
    text = "" if checkpoint is None else checkpoint.state.get("conf", "")
    conf = as_trained(conf, parse_config(text, "the checkpoint's conf")) if text else conf
    require_agreement(conf, scene, ranks)
    return conf, checkpoint


def begun(model: Model, ranks: Ranks) -> str:
    """Begin a new training, on every rank with the weights of rank 0; returns the note of `Model.begin`.

    Ranks with other numbers of threads round sums differently.
    """
    note = model.begin()
    if ranks.size > 1:
        for network in model.networks.values():
            import_state(network, ranks.broadcast(export_state(network)))
    return note


def require_same_weights(trainer: Trainer, ranks: Ranks) -> None:
    """Raises UserError on all ranks if their weights are not bit-identical."""
    if ranks.size == 1:
        return
    digest = 0
    for value in trainer.optimizer.parameters:
        digest = zlib.crc32(value.numpy(), digest)
    found = ranks.everyone(digest)
    if len(set(found)) > 1:
        others = listed([str(rank) for rank, one in enumerate(found) if one != found[0]])
        raise UserError(
            f"step {trainer.finished_steps}: the weights of rank {others} differ from those of rank 0: use "
            "machines with processors of the same type, and resume from the last checkpoint with --is_continue"
        )


def program_digest(folder: Path) -> str:
    """A digest of the program's source files."""
    digest = 0
    for name in ("data", "models"):
        for file in sorted((folder / name).rglob("*")):
            if file.suffix in (".py", ".h", ".cc", ".cu"):
                digest = zlib.crc32(file.read_bytes(), zlib.crc32(str(file.relative_to(folder)).encode(), digest))
    return f"{digest:08x}"


def scene_digest(scene: Scene) -> str:
    """A digest of photographs, masks and cameras, without the name of the scene."""
    arrays: list[Any] = [scene.intrinsics, scene.c2w, scene.scene_to_world, *scene.images, *(scene.masks or ())]
    digest = 0
    for array in arrays:
        digest = zlib.crc32(np.ascontiguousarray(array), zlib.crc32(repr(array.shape).encode(), digest))
    return f"{scene.n_views} photographs, {digest:08x}"

"""Code shared by modes: common flags, the choice of the device, opening and closing an experiment."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from data.io.streams import complain
from models.commands import interface
from models.commands.command import (
    EXIT_DONE,
    EXIT_EMPTY_SURFACE,
    EXIT_NOT_FINITE,
    EXPERIMENT,
    OUTPUT,
    Arguments,
    ExperimentConfig,
    failed,
    flag,
)
from models.commands.flag_types import MAX_INT, finite, whole
from models.requests import FRAMES, PUBLISHED_RESOLUTION, WORLD, MeshRequest
from models.results import trained
from models.results.report.document import LANGUAGES
from models.results.trained import TrainedModel

MAX_RESOLUTION = 2048  # gives tens of millions of triangles and needs 4 GB of memory

OVERWRITE = flag(
    "--overwrite",
    EXPERIMENT,
    action="store_true",
    help="start from the beginning: a prepared scene is replaced; earlier checkpoints are deleted when the "
    "first new one is complete (reconstruct: when the training is finished)",
)
CHECKPOINT = flag(
    "--checkpoint",
    EXPERIMENT,
    type=Path,
    metavar="FILE",
    help="checkpoint instead of the newest: .safetensors, a published .pth, or Gaussians (.ply; for images and meshes)",
)
LANGUAGE = flag(
    "--language",
    OUTPUT,
    choices=LANGUAGES,
    help="language of the HTML pages (default: that of the browser)",
)
FRAME = flag(
    "--frame",
    OUTPUT,
    choices=FRAMES,
    default=WORLD,
    help="world frame of the cameras, or unit-sphere frame; validate_mesh: of the output; evaluate: of --mesh, "
    "--gt, --tau and --points (default: world)",
)
RESOLUTION_LEVEL = flag(
    "--resolution_level",
    OUTPUT,
    type=whole(1, MAX_INT),
    metavar="L",
    help="validate_image, render, interpolate: reduction factor, 1: full size (default: "
    "train.validate_resolution_level; for videos the largest that leaves 720 lines; 1 for a camera-path "
    "file)",
)
MESH = (
    flag(
        "--resolution",
        OUTPUT,
        type=whole(2, MAX_RESOLUTION),
        default=PUBLISHED_RESOLUTION,
        metavar="N",
        help=f"validate_mesh, evaluate: grid points per side (default: {PUBLISHED_RESOLUTION})",
    ),
    flag(
        "--mcube_threshold",
        OUTPUT,
        type=finite,
        metavar="X",
        help="validate_mesh, evaluate: extracted level of the negative signed distance (default: 0) or of the "
        "density of a NeRF (default: 25)",
    ),
)


def mesh_request(values: argparse.Namespace) -> MeshRequest:
    """The mesh that the flags of `MESH` describe; raises UserError if it needs more memory than is free."""
    from models.methods.capacity import require_mesh

    require_mesh(values.resolution, f"--resolution {values.resolution}")
    return MeshRequest(resolution=values.resolution, threshold=values.mcube_threshold)


def choose_device(arguments: Arguments, conf: ExperimentConfig, is_trained: bool = False) -> ExperimentConfig:
    """The conf for the device of the flags, which is chosen; raises UserError as `trained.choose_device`."""
    return trained.choose_device(conf, arguments.device, arguments.gpu, is_trained)


def ended(work: Callable[[], object], advice: str = "") -> int:
    """Do the work; returns the exit status. `advice`: how to continue after a signal."""
    from models.mesh.extraction import EmptySurfaceError
    from models.training.stops import DivergedError, Interrupted

    try:
        work()
    except EmptySurfaceError as error:
        return failed(str(error), EXIT_EMPTY_SURFACE)
    except Interrupted as stop:
        complain(f"{stop}{advice}")
        return stop.status
    except DivergedError as error:
        return failed(str(error), EXIT_NOT_FINITE)
    return EXIT_DONE


def with_model(arguments: Arguments, conf: ExperimentConfig, work: Callable[[TrainedModel], object]) -> int:
    """Make a result of the model of the flags; returns the exit status."""

    def result() -> None:
        with interface.open_model(conf, arguments.checkpoint, device=arguments.device, gpu=arguments.gpu) as model:
            work(model)

    return ended(result)

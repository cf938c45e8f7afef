"""Code shared by modes: common flags, the choice of the device, opening and closing an experiment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError, is_allocation_failure
from data.io.streams import complain
from models.commands.command import (
    EXIT_DONE,
    EXIT_EMPTY_SURFACE,
    EXIT_NOT_FINITE,
    EXIT_STOPPED,
    EXPERIMENT,
    OUTPUT,
    Arguments,
    ExperimentConfig,
    failed,
    flag,
)
from models.commands.flag_types import MAX_INT, finite, whole
from models.machine.ranks.place import here, own_card
from models.machine.ranks.ranks import AbandonedError, joined
from models.report.document import LANGUAGES
from models.requests import UNIT, WORLD, MeshRequest

if TYPE_CHECKING:
    from models.experiment import Experiment
    from models.results.context import EvalContext
    from models.runner import Runner

PUBLISHED_RESOLUTION = 512  # https://github.com/Totoro97/NeuS/blob/6e0a230/exp_runner.py, --mode validate_mesh
MAX_RESOLUTION = 2048  # gives tens of millions of triangles and needs 4 GB of memory

OVERWRITE = flag(
    "--overwrite",
    EXPERIMENT,
    action="store_true",
    help="train: start from the beginning in a folder with checkpoints, which are deleted once the first new one "
    "is complete. prepare: replace the scene",
)
CHECKPOINT = flag(
    "--checkpoint",
    EXPERIMENT,
    type=Path,
    metavar="FILE",
    help="checkpoint to use instead of the newest: of this program (.safetensors), of the published code (.pth), "
    "or Gaussians (.ply; for images and meshes)",
)
LANGUAGE = flag(
    "--language",
    OUTPUT,
    choices=LANGUAGES,
    help="language of pages: en (English) or zh (Chinese) (default: that of the browser)",
)
FRAME = flag(
    "--frame",
    OUTPUT,
    choices=(WORLD, UNIT),
    default=WORLD,
    help="world frame of the cameras, or unit-sphere frame; validate_mesh: of the output; evaluate: of --gt, "
    "--tau and --points (default: world)",
)
RESOLUTION_LEVEL = flag(
    "--resolution_level",
    OUTPUT,
    type=whole(1, MAX_INT),
    metavar="L",
    help="validate_image, render, interpolate: reduction factor, 1 for full size (default: "
    "train.validate_resolution_level of the conf; for videos the largest that leaves 720 lines; 1 for a camera-path "
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
        help="validate_mesh, evaluate: level of the extracted surface, of the negative signed distance (default: "
        "0) or of the density of a NeRF (default: 25)",
    ),
)


def mesh_request(values: argparse.Namespace) -> MeshRequest:
    """The mesh that the flags of `MESH` describe; raises UserError if it needs more memory than is free."""
    from models.methods.capacity import require_mesh

    require_mesh(values.resolution, f"--resolution {values.resolution}")
    return MeshRequest(resolution=values.resolution, threshold=values.mcube_threshold)


def choose_device(arguments: Arguments, conf: ExperimentConfig, is_trained: bool = False) -> None:
    """Choose the device; raises UserError if it is not available, or the networks need more memory than is free."""
    from models.machine import backend
    from models.methods.capacity import require_networks

    backend.select(arguments.device, own_card(arguments.gpu, os.environ))
    require_networks(conf.model, is_trained)


def open_trained(arguments: Arguments, conf: ExperimentConfig, *views: int) -> Experiment:
    """The experiment with its checkpoint; raises UserError if there is none, or for an invalid view index."""
    from data.scenes.scene import require_view
    from models.experiment import open_results

    experiment = open_results(conf, arguments.checkpoint, complain)
    for view in views:
        require_view(experiment.scene, view)
    return experiment


def work_on(experiment: Experiment, work: Callable[[Runner], None]) -> int:
    """Load Jittor and do the work, with a log; returns the exit status. A UserError removes the files of the run."""
    from models.monitoring.interrupts import DivergedError, Interrupted
    from models.monitoring.logger import RunLogger
    from models.surface.extraction import EmptySurfaceError

    resumed_at = experiment.checkpoint.step if experiment.checkpoint else None
    try:
        is_first = here().rank == 0
        with RunLogger(experiment.folder, not is_first, resumed_at, is_first) as log:
            from models.runner import Runner

            work(Runner(experiment, log))
            joined().close()
    except (UserError, ImportError, MemoryError):
        experiment.withdraw()
        raise
    except (RuntimeError, OSError) as error:
        if is_allocation_failure(error):
            experiment.withdraw()
        raise
    except EmptySurfaceError as error:
        return failed(str(error), EXIT_EMPTY_SURFACE)
    except AbandonedError:  # between two steps, or before the first
        return failed("stopped by a signal while ranks waited for each other", EXIT_STOPPED)
    except Interrupted as stop:
        return failed(f"{stop}; continue with --is_continue", stop.status)
    except DivergedError as error:
        return failed(str(error), EXIT_NOT_FINITE)
    finally:
        experiment.close()
    return EXIT_DONE


def show(experiment: Experiment, result: Callable[[EvalContext], object]) -> int:
    """Make a result from a checkpoint; returns the exit status."""
    return work_on(experiment, lambda runner: result(runner.snapshot()))

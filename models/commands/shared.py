"""Code shared by modes: requests that flags describe, and results of a model with their exit statuses."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from data.io.streams import complain
from models.commands import functions
from models.commands.command import EXIT_DONE, EXIT_EMPTY_SURFACE, EXIT_NOT_FINITE, Arguments, ExperimentConfig, failed
from models.mesh.output import require_format, require_valid
from models.requests import VERTEX, MeshRequest
from models.results.trained import TrainedModel


def named(kind: type, values: argparse.Namespace) -> dict[str, Any]:
    """The flags whose names are those of fields of a dataclass."""
    return {field.name: getattr(values, field.name) for field in fields(kind) if field.name in values}


def mesh_request(values: argparse.Namespace) -> MeshRequest:
    """The mesh that all flags describe; raises UserError for a format that does not support the colours."""
    color = require_format(values.output, values.colour) if values.output else values.colour or VERTEX
    return MeshRequest(**named(MeshRequest, values) | {"color": color, "bbox": values.bbox and tuple(values.bbox)})


def check_mesh(values: argparse.Namespace) -> None:
    """Raises UserError for a mesh that cannot be made, or cannot be written to --output."""
    if values.mode in ("render", "compare", "reconstruct"):  # for these modes --output is not a mesh
        values = argparse.Namespace(**vars(values) | {"output": None})
    require_valid(mesh_request(values))


def ended(work: Callable[[], object], advice: str = "") -> int:
    """Do the work; returns the exit status. `advice`: how to continue after a signal."""
    from models.mesh.extraction import EmptySurfaceError
    from models.runs.stops import Interrupted
    from models.training.checkpoint import DivergedError

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
    from models.methods.capacity import require_mesh

    if any(flag.name == "--resolution" for flag in arguments.command.flags):  # before a checkpoint is read
        require_mesh(arguments.values.resolution, f"--resolution {arguments.values.resolution}")

    def result() -> None:
        with functions.open_model(conf, arguments.checkpoint, device=arguments.device, gpu=arguments.gpu) as model:
            work(model)

    return ended(result)

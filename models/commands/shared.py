"""Code shared by modes: requests that flags describe, and results of a model with their exit statuses."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from data.errors import UserError
from data.io.files import require_place
from data.io.streams import complain
from models.commands import functions
from models.commands.command import (
    EXIT_DONE,
    EXIT_EMPTY_SURFACE,
    EXIT_NOT_FINITE,
    Arguments,
    ExperimentConfig,
    failed,
)
from models.requests import TEXTURE, UNIT, VERTEX, MeshRequest
from models.results.trained import TrainedModel


def mesh_request(values: argparse.Namespace) -> MeshRequest:
    """The mesh that --resolution and --mcube_threshold describe; raises UserError if it needs more than free memory."""
    from models.methods.capacity import require_mesh

    require_mesh(values.resolution, f"--resolution {values.resolution}")
    return MeshRequest(values.resolution, values.threshold)


def full_request(values: argparse.Namespace) -> MeshRequest:
    """The mesh that all flags describe; raises UserError as `mesh_request`."""
    names = {field.name for field in fields(MeshRequest)}.intersection(vars(values))
    given = {name: getattr(values, name) for name in names} | {"color": color(values)}
    given["bbox"] = values.bbox and tuple(values.bbox)
    return MeshRequest(**vars(mesh_request(values)) | given)


def color(values: argparse.Namespace) -> str:
    """The type of colours of the mesh; raises UserError for a format that does not support it."""
    if values.output is None:
        return values.colour or VERTEX
    from models.surface.formats import require_format

    return require_format(values.output, values.colour)


def check_mesh(values: argparse.Namespace) -> None:
    """Raises UserError for an empty box, flags that exclude each other, a missing package, and an unusable --output."""
    if values.bbox is not None and not all(
        low < high for low, high in zip(values.bbox[:3], values.bbox[3:], strict=True)
    ):
        raise UserError(
            f"--bbox {' '.join(f'{value:.12g}' for value in values.bbox)}: each of the first three numbers must be "
            "below its counterpart among the last three"
        )
    if values.up is not None and values.frame == UNIT:
        raise UserError("--up: applies only to the world frame; omit --up or --frame unit")
    if values.decimate is not None and values.simplify is not None:
        raise UserError("--decimate, --simplify: one gives the number of triangles, the other the error; give only one")
    if values.mode in ("render", "compare"):
        return  # for these modes --output is not a mesh
    if values.output is not None and values.mode != "reconstruct":  # which refuses it
        _require_places(values.output, color(values))
    for package, name, is_given in (
        ("fast_simplification", "--decimate, --simplify", (values.decimate or values.simplify) is not None),
        ("xatlas", "--colour texture", values.colour == TEXTURE),
    ):
        if is_given and importlib.util.find_spec(package) is None:
            raise UserError(f"{name}: the Python package {package} is missing; run `pip install -r requirements.txt`")


def _require_places(output: Path, wanted: str) -> None:
    """Raises UserError if mesh, material or texture cannot be written, or would replace a foreign file.

    A .png or .mtl without the .obj is foreign, such as a photograph.
    """
    from models.surface.formats import companions, offset_file

    require_place(output, "--output")
    for path in (*companions(output, wanted), offset_file(output)):
        require_place(path, "--output")
        if os.path.lexists(path) and not os.path.lexists(output):
            raise UserError(f"--output {output}: {path} exists and would be replaced; name another file")


def ended(work: Callable[[], object], advice: str = "") -> int:
    """Do the work; returns the exit status. `advice`: how to continue after a signal."""
    from models.surface.extraction import EmptySurfaceError
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
        with functions.open_model(conf, arguments.checkpoint, device=arguments.device, gpu=arguments.gpu) as model:
            work(model)

    return ended(result)

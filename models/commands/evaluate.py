"""`--mode evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands import interface
from models.commands.command import OUTPUT, Arguments, Command, flag
from models.commands.flag_types import finite, whole
from models.commands.mesh_flags import ALONE, MESH_FILE, UP
from models.commands.shared import CHECKPOINT, FRAME, LANGUAGE, MESH, mesh_request, with_model
from models.requests import EvaluationRequest

if TYPE_CHECKING:
    from models.methods.conf import ExperimentConfig

DTU = "dtu"
LARGEST_SCAN = 128  # of the DTU data set

FLAGS = (
    flag(
        "--gt",
        OUTPUT,
        type=Path,
        metavar="FILE",
        help="evaluate: ground truth in --frame, a mesh (.ply, .obj, .stl, .glb) or a point cloud (.ply) (default: "
        "dataset.reference_mesh)",
    ),
    flag(
        "--tau",
        OUTPUT,
        type=finite,
        metavar="X",
        help="evaluate: threshold of the F-score, in units of --frame (default: 0.01 radii of the region of interest)",
    ),
    flag(
        "--points",
        OUTPUT,
        type=Path,
        metavar="FILE",
        help="evaluate: SfM points in --frame, .ply (default: those of the scene)",
    ),
    flag(
        "--protocol",
        OUTPUT,
        choices=(DTU,),
        help="evaluate: the published DTU protocol, in millimetres; requires --dtu",
    ),
    flag(
        "--dtu",
        OUTPUT,
        type=Path,
        metavar="FOLDER",
        help="evaluate: folder with ObsMask/ and Points/stl/",
    ),
    flag(
        "--scan",
        OUTPUT,
        type=whole(1, LARGEST_SCAN),
        metavar="N",
        help="evaluate: number of the DTU scan (default: the number after scan in the scene name)",
    ),
    flag(
        "--csv",
        OUTPUT,
        type=Path,
        metavar="FILE",
        help="evaluate: table to which a row is added; experiments may share it (default: report/metrics.csv)",
    ),
)


def check(values: argparse.Namespace) -> None:
    """Raises UserError for flags that require each other, and for a tau that is not positive."""
    if (values.protocol is None) != (values.dtu is None):
        raise UserError("--protocol dtu and --dtu FOLDER must be given together; FOLDER has ObsMask/ and Points/stl/")
    if values.scan is not None and values.dtu is None:
        raise UserError("--scan: needs --protocol dtu --dtu FOLDER")
    if values.tau is not None and values.tau <= 0:
        raise UserError(f"--tau {values.tau:g}: must be above 0")


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the metrics and the report's image; returns the exit status."""
    request, language = evaluation_request(arguments.values), arguments.values.language
    return with_model(arguments, conf, lambda model: interface.evaluate(model, request, language))


def evaluation_request(values: argparse.Namespace) -> EvaluationRequest:
    """The metrics that the flags ask for."""
    names = ("gt", "tau", "points", "frame", "dtu", "scan", "csv", "mesh_file", "up", "is_object")
    return EvaluationRequest(mesh_request(values), **{name: getattr(values, name) for name in names})


COMMAND = Command(
    name="evaluate",
    line="metrics on test photographs, against ground truth and SfM points, and of cameras: a table and files",
    run=run,
    flags=(CHECKPOINT, *MESH, FRAME, UP, MESH_FILE, ALONE, *FLAGS, LANGUAGE),
    check=check,
    needs_checkpoint=True,
)

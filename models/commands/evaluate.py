"""`--mode evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands.command import OUTPUT, Arguments, Command, flag
from models.commands.flag_types import finite, whole
from models.commands.shared import CHECKPOINT, FRAME, LANGUAGE, MESH, choose_device, mesh_request, open_trained, show

if TYPE_CHECKING:
    from models.kinds.conf import ExperimentConfig
    from models.results.asked import Asked, References
    from models.results.snapshot import Snapshot
    from models.surface.request import MeshRequest

DTU = "dtu"
LARGEST_SCAN = 128  # of the DTU data set

FLAGS = (
    flag(
        "--gt",
        OUTPUT,
        type=Path,
        metavar="FILE",
        help="evaluate: ground truth, a mesh (.ply, .obj, .stl) or the points of a .ply, in the frame of --frame "
        "(default: dataset.reference_mesh of the conf)",
    ),
    flag(
        "--tau",
        OUTPUT,
        type=finite,
        metavar="X",
        help="evaluate: how far a point may be off to count in the F-score, in units of --frame (default: a hundredth "
        "of the radius of the region of interest)",
    ),
    flag(
        "--points",
        OUTPUT,
        type=Path,
        metavar="FILE",
        help="evaluate: points of structure from motion, a .ply in the frame of --frame (default: the scene's own)",
    ),
    flag(
        "--protocol",
        OUTPUT,
        choices=(DTU,),
        help="evaluate: score as published for the DTU data set, in millimetres; needs --dtu",
    ),
    flag(
        "--dtu",
        OUTPUT,
        type=Path,
        metavar="FOLDER",
        help="evaluate: the folder with ObsMask/ and Points/stl/ of the DTU evaluation",
    ),
    flag(
        "--scan",
        OUTPUT,
        type=whole(1, LARGEST_SCAN),
        metavar="N",
        help="evaluate: the DTU scan that the scene shows (default: the number after scan in the scene's name)",
    ),
    flag(
        "--csv",
        OUTPUT,
        type=Path,
        metavar="FILE",
        help="evaluate: the table that gets a row with the figures, which several experiments may share (default: "
        "report/metrics.csv in the experiment's folder)",
    ),
)


def check(values: argparse.Namespace) -> None:
    """Raises UserError for flags that lack each other, and a tau that nothing is within."""
    if (values.protocol is None) != (values.dtu is None):
        raise UserError("--protocol dtu, --dtu FOLDER: one needs the other; FOLDER holds ObsMask/ and Points/stl/")
    if values.scan is not None and values.dtu is None:
        raise UserError("--scan: is the number of a DTU scan and needs --protocol dtu --dtu FOLDER")
    if values.tau is not None and values.tau <= 0:
        raise UserError(f"--tau {values.tau:g}: must be above 0")


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write figures and the report's picture; returns the exit status."""
    from models.results.asked import Asked, read_references

    choose_device(arguments, conf)
    values = arguments.values
    request = mesh_request(values)
    asked = Asked(
        values.gt, values.tau, values.points, values.frame, values.dtu, values.scan, values.csv, values.language
    )
    experiment = open_trained(arguments, conf)
    references = read_references(experiment, asked)
    return show(experiment, lambda snapshot: _evaluate(snapshot, request, asked, references))


def _evaluate(snapshot: Snapshot, request: MeshRequest, asked: Asked, references: References) -> None:
    """What needs Jittor, which is loaded by now."""
    from models.results.evaluation import evaluate

    evaluate(snapshot, request, asked, references)


COMMAND = Command(
    name="evaluate",
    line="figures: held-out views, ground truth, points of structure from motion, cameras; as a table and as files",
    run=run,
    flags=(CHECKPOINT, *MESH, FRAME, *FLAGS, LANGUAGE),
    check=check,
    needs_checkpoint=True,
    is_shared=True,
)

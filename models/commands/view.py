"""`--mode view`, and the flags of the viewer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands.command import OUTPUT, Arguments, Command, ExperimentConfig, flag
from models.commands.flag_types import whole
from models.commands.shared import CHECKPOINT, LANGUAGE, with_model
from models.requests import NETWORK, VIEWS, MeshRequest
from models.results.trained import TrainedModel
from models.viewer.server import FIRST_PORT, LAST_PORT, LOOPBACK, PORT, require_viser

if TYPE_CHECKING:
    from models.viewer.handles import ConfKeys
    from models.viewer.sessions import Place

NAME = "view"
VIEW = flag(
    "--view",
    OUTPUT,
    action="store_true",
    help="train, inspect: also start the viewer (requires viser)",
)
VIEWER = (
    VIEW,
    flag(
        "--host",
        OUTPUT,
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"view, --view: address of the viewer: {LOOPBACK} for this machine only (default), 0.0.0.0 for "
        "the network, with the token of the printed address",
    ),
    flag(
        "--port",
        OUTPUT,
        type=whole(FIRST_PORT, LAST_PORT),
        default=PORT,
        metavar="N",
        help=f"view, --view: port; if in use, the next free one (default: {PORT})",
    ),
    LANGUAGE,
)


def check(values: argparse.Namespace) -> None:
    """Raises UserError if the viewer is not installed, or the mode has none."""
    if values.view and values.mode not in ("train", "inspect", NAME):
        raise UserError(
            f"--view: is a flag of --mode train and inspect, not of {values.mode}; --mode view shows a trained model"
        )
    if values.mode == NAME or values.view:
        require_viser("--view" if values.view else "--mode view")


def place_of(arguments: Arguments) -> Place:
    """Address, port and language of the viewer."""
    from models.viewer.sessions import Place

    values = arguments.values
    return Place(values.host, values.port, values.language)


def keys_of(arguments: Arguments, conf: ExperimentConfig) -> ConfKeys:
    """The conf file and scene folder, for the keys that the viewer saves."""
    from models.commands.conf import conf_file
    from models.viewer.handles import ConfKeys

    dataset = conf.dataset
    return ConfKeys(conf_file(arguments), Path(dataset.data_dir), dataset.roi, dataset.bbox)


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Show a trained model until Ctrl-C; returns the exit status."""
    from models.checkpoints.folder import checkpoint_files
    from models.results.experiment import CHECKPOINTS

    keys, place = keys_of(arguments, conf), place_of(arguments)

    def look(model: TrainedModel) -> None:
        folder, scene = model.experiment.folder, model.scene  # raises before Jittor is loaded
        files = {} if arguments.checkpoint else checkpoint_files(folder / CHECKPOINTS)
        context = model.context
        from models.viewer.sessions import look_at_model

        # as reconstruct delivers it
        clean = VIEWS if scene.masks is None else None
        mesh = MeshRequest(context.experiment.conf.train.mesh_resolution, clean=clean, color=NETWORK)
        look_at_model(context, mesh, files, keys, place)

    return with_model(arguments, conf, look)


COMMAND = Command(
    name=NAME,
    line="show the model in the browser: mesh, cameras, points, region of interest, renderings",
    run=run,
    flags=(CHECKPOINT, *VIEWER),
    check=check,
    needs_checkpoint=True,
)

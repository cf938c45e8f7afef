"""`--mode view`, and the flags of the viewer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from models.commands.command import OUTPUT, Arguments, Command, ExperimentConfig, flag
from models.commands.flag_types import whole
from models.commands.shared import CHECKPOINT, LANGUAGE, choose_device, open_trained, work_on
from models.viewer.server import FIRST_PORT, LAST_PORT, LOOPBACK, PORT, require_viser

if TYPE_CHECKING:
    from models.results.context import EvalContext
    from models.runner import Runner
    from models.surface.mesh import Surface
    from models.viewer.crop import ConfKeys
    from models.viewer.scene_viewer import Place

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
    from models.viewer.scene_viewer import Place

    values = arguments.values
    return Place(values.host, values.port, values.language)


def keys_of(arguments: Arguments, conf: ExperimentConfig) -> ConfKeys:
    """The conf file and scene folder, for the keys that the viewer saves."""
    from models.commands.conf import conf_file
    from models.viewer.crop import ConfKeys

    dataset = conf.dataset
    return ConfKeys(conf_file(arguments), Path(dataset.data_dir), dataset.roi, dataset.bbox)


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Show a trained model until Ctrl-C; returns the exit status."""
    from models.checkpoints.folder import checkpoint_files
    from models.experiment import CHECKPOINTS

    conf = choose_device(arguments, conf)
    experiment = open_trained(arguments, conf)
    files = {} if arguments.checkpoint else checkpoint_files(experiment.folder / CHECKPOINTS)
    keys, place = keys_of(arguments, conf), place_of(arguments)
    return work_on(experiment, lambda runner: _look(runner, files, keys, place))


def _look(runner: Runner, files: dict[int, Path], keys: ConfKeys, place: Place) -> None:
    from models.checkpoints.ours import load_checkpoint
    from models.requests import NETWORK, VIEWS, MeshRequest
    from models.results.meshes import finished_mesh, validate_mesh
    from models.viewer.model_viewer import look_at_model, mesh_or_none

    def mesh(context: EvalContext) -> Surface | None:
        clean = VIEWS if context.experiment.scene.masks is None else None  # as reconstruct delivers it
        request = MeshRequest(runner.conf.mesh_resolution, clean=clean, color=NETWORK)
        return mesh_or_none(lambda: finished_mesh(context, request), runner.log.info)

    def go_to(path: Path) -> None:
        runner.trainer.restore(load_checkpoint(path))

    look_at_model(runner.snapshot, mesh, validate_mesh, files, go_to, keys, place)


COMMAND = Command(
    name=NAME,
    line="show the model in the browser: mesh, cameras, points, region of interest, renderings",
    run=run,
    flags=(CHECKPOINT, *VIEWER),
    check=check,
    needs_checkpoint=True,
)

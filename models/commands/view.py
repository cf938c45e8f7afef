"""`--mode view`, and what the viewer of other modes needs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import CHECKPOINT, VIEWER
from models.commands.shared import with_model
from models.requests import NETWORK, VIEWS, MeshRequest
from models.results.trained import TrainedModel
from models.viewer.server import require_viser

if TYPE_CHECKING:
    from models.viewer.handles import ConfKeys
    from models.viewer.sessions import Place


def check(values: argparse.Namespace) -> None:
    """Raises UserError if the viewer is not installed."""
    if values.mode == "view" or values.view:
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

    def look(model: TrainedModel) -> None:
        folder, scene = model.experiment.folder, model.scene  # raises before Jittor is loaded
        files = {} if arguments.checkpoint else checkpoint_files(folder / CHECKPOINTS)
        context = model.context
        from models.viewer.sessions import look_at_model

        # as reconstruct delivers it
        clean = VIEWS if scene.masks is None else None
        mesh = MeshRequest(context.experiment.conf.train.mesh_resolution, clean=clean, color=NETWORK)
        look_at_model(context, mesh, files, keys_of(arguments, conf), place_of(arguments))

    return with_model(arguments, conf, look)


COMMAND = Command(
    name="view",
    line="show the model in the browser: mesh, cameras, points, region of interest, renderings",
    run=run,
    flags=(CHECKPOINT, *VIEWER),
    check=check,
    needs_checkpoint=True,
)

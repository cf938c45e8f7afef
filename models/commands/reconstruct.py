"""`--mode reconstruct`: from photographs or a video to a coloured mesh."""

from __future__ import annotations

import argparse

from data.errors import UserError
from data.io.streams import say
from models.commands.command import EXIT_NOT_FINITE, EXIT_OF_SIGNAL, Arguments, Command, ExperimentConfig
from models.commands.evaluate import evaluation_request
from models.commands.flags import RECONSTRUCTION
from models.commands.interface import Reconstruction, reconstruct
from models.commands.prepare import preparation
from models.commands.reconstruction_work import CONF
from models.commands.shared import ended, mesh_request


def check(values: argparse.Namespace) -> None:
    """Raises UserError for flags that do not apply."""
    if values.mode != COMMAND.name:
        return
    for name, is_given in (("--is_continue", values.is_continue), ("--checkpoint", values.checkpoint is not None)):
        if is_given:
            raise UserError(f"{name}: does not apply to --mode reconstruct, which continues by itself; leave it out")
    from models.commands.reconstruction_settings import require_possible

    require_possible(values.minutes, values.output, values.colour)


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Run the steps; returns the exit status of the first one that fails."""
    del conf  # without --case it is that of the bundled scene
    values, found = arguments.values, list[Reconstruction]()

    def work() -> None:
        result = reconstruct(
            **preparation(values),
            minutes=values.minutes,
            conf=arguments.conf or CONF,
            case=arguments.case,
            overrides=arguments.overrides,
            mesh=mesh_request(values),
            evaluation=evaluation_request(values),
            device=arguments.device,
            gpu=arguments.gpu,
            language=values.language,
        )
        found.append(result)

    status = ended(work)
    if status > EXIT_OF_SIGNAL:
        say(f"repeat the command{' without --overwrite' if values.overwrite else ''} to continue")
    return EXIT_NOT_FINITE if found and found[0].notes else status


COMMAND = Command(
    name="reconstruct",
    line="create a mesh, images and metrics from photographs or a video (--images); resumes when repeated",
    run=run,
    continues=True,
    flags=RECONSTRUCTION,
    check=check,
    plain_word="images",
    conf_of_case=CONF,
)

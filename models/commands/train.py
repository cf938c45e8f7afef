"""`--mode train`."""

from __future__ import annotations

import argparse
from pathlib import Path

from data.io.streams import say
from models.commands import cases, functions
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.conf import read_conf
from models.commands.flags import CASES, CHECKPOINT, IS_CONTINUE, OVERWRITE, VIEWER
from models.commands.printed import command_line, of_the_scene
from models.commands.shared import ended
from models.commands.view import keys_of, place_of
from models.requests import TrainingRequest
from models.results.request_checks import require_training


def check(values: argparse.Namespace) -> None:
    """Raises UserError for flags that contradict each other."""
    require_training(TrainingRequest(values.is_continue, values.overwrite, values.checkpoint))
    cases.check(values)


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Train to the last step; returns the exit status."""
    if arguments.values.cases is not None:
        return cases.run_cases(arguments)
    values, callbacks = arguments.values, []
    if values.view:
        from models.viewer.sessions import ViewerCallback

        callbacks.append(ViewerCallback(keys_of(arguments, conf), place_of(arguments), say))
    return ended(
        lambda: functions.train(
            conf,
            is_continue=values.is_continue,
            overwrite=values.overwrite,
            checkpoint=arguments.checkpoint,
            device=arguments.device,
            gpu=arguments.gpu,
            language=values.language,
            callbacks=callbacks,
        ),
        "; continue with --is_continue",
    )


def next_steps(arguments: Arguments) -> list[str]:
    """Where the results are, and the command that extracts the mesh; nothing after several scenes."""
    if arguments.values.cases is not None:
        return []
    from models.checkpoints.folder import checkpoint_files
    from models.results.experiment import CHECKPOINTS
    from models.results.report.document import REPORT

    folder = Path(read_conf(arguments).general.base_exp_dir)
    saved = list(checkpoint_files(folder / CHECKPOINTS).values())[-1:]
    lines = [f"checkpoint: {path}" for path in saved]
    lines += [f"report: {folder / REPORT}"] if (folder / REPORT).is_file() else []
    again = command_line([*of_the_scene(arguments, arguments.conf), "--mode", "validate_mesh"])
    return [*lines, f"next: {again}"]


COMMAND = Command(
    name="train",
    line="train on the scene of the conf; writes checkpoints, images and meshes",
    run=run,
    flags=(IS_CONTINUE, OVERWRITE, CHECKPOINT, CASES, *VIEWER),
    check=check,
    next_steps=next_steps,
    is_shared=True,
)

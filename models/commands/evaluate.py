"""`--mode evaluate`."""

from __future__ import annotations

import argparse

from data.errors import UserError
from models.commands import functions
from models.commands.command import Arguments, Command, ExperimentConfig
from models.commands.flags import ALONE, CHECKPOINT, EVALUATION, FRAME, LANGUAGE, MESH_FILE, RESOLUTION, UP
from models.commands.shared import named, with_model
from models.requests import EvaluationRequest, MeshRequest
from models.results.request_checks import require_evaluation


def check(values: argparse.Namespace) -> None:
    """Raises UserError for flags that require each other."""
    if (values.protocol is None) != (values.dtu is None):
        raise UserError("--protocol dtu and --dtu FOLDER must be given together; FOLDER has ObsMask/ and Points/stl/")
    if values.mode in ("evaluate", "reconstruct"):
        require_evaluation(evaluation_request(values))


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Write the metrics and the report's image; returns the exit status."""
    request, language = evaluation_request(arguments.values), arguments.values.language
    return with_model(arguments, conf, lambda model: functions.evaluate(model, request, language))


def evaluation_request(values: argparse.Namespace) -> EvaluationRequest:
    """The metrics that the flags ask for."""
    return EvaluationRequest(MeshRequest(values.resolution, values.threshold), **named(EvaluationRequest, values))


COMMAND = Command(
    name="evaluate",
    line="metrics on test photographs, against ground truth and SfM points, and of cameras: a table and files",
    run=run,
    flags=(CHECKPOINT, *RESOLUTION, FRAME, UP, MESH_FILE, ALONE, *EVALUATION, LANGUAGE),
    check=check,
    needs_checkpoint=True,
)

"""`--mode compare`. Nothing is trained; Jittor is not loaded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from data.io.files import require_place
from data.io.streams import say
from models.commands.command import EXIT_DONE, EXPERIMENT, Arguments, Command, flag
from models.commands.mesh_flags import OUTPUT_FILE
from models.commands.shared import LANGUAGE

if TYPE_CHECKING:
    from models.methods.conf import ExperimentConfig

LEAST = 2
REPORT = "report.html"  # of a training


def check(values: argparse.Namespace) -> None:
    """Raises UserError for too few experiments, or for experiments with another mode."""
    given = values.experiments or ()
    if values.mode == "compare" and len(given) < LEAST:
        raise UserError("--mode compare: name the folders of two experiments or more, such as exp/a exp/b")
    if given and values.mode != "compare":
        raise UserError("--experiments: is a flag of --mode compare")
    if values.mode == "compare" and values.output is not None:
        if values.output.suffix.lower() != ".html":
            raise UserError(f"--output {values.output}: name a .html file")
        require_place(values.output, "--output")
        if values.output.name == REPORT and values.output.parent.resolve() in [path.resolve() for path in given]:
            raise UserError(f"--output {values.output}: is the report of that experiment; name another file")


def run(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Print the metrics of evaluated experiments side by side and write their page; returns the exit status."""
    from models.results.comparison import compare, evaluated
    from models.results.report.pages import write_page

    del conf
    values = arguments.values
    found = evaluated(values.experiments)
    folders = [Path(name) for name, _ in found]
    lines = list(compare(found))  # raises before anything is printed
    say(*lines, "")
    write_page(folders, found, values.output, values.language, say)
    return EXIT_DONE


COMMAND = Command(
    name="compare",
    line="compare evaluated experiments: differences, metrics, and a page with images and meshes",
    run=run,
    flags=(
        flag(
            "--experiments",
            EXPERIMENT,
            type=Path,
            nargs="+",
            metavar="EXP",
            help="compare: experiment folders; the name of this flag may be omitted",
        ),
        OUTPUT_FILE,
        LANGUAGE,
    ),
    check=check,
    plain_word="experiments",  # allows `--mode compare EXP_A EXP_B`
)

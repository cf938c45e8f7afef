"""`--mode compare`. Nothing is trained; Jittor is not loaded."""

from __future__ import annotations

import argparse
from pathlib import Path

from data.errors import UserError
from data.io.files import require_place
from data.io.streams import say
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.commands.flags import EXPERIMENTS, LANGUAGE, OUTPUT_FILE
from models.results.report.document import REPORT


def check(values: argparse.Namespace) -> None:
    """Raises UserError for too few experiments, and for an unusable --output."""
    if values.mode != "compare":
        return
    given, output = values.experiments or (), values.output
    if len(given) < 2:
        raise UserError("--mode compare: name the folders of two experiments or more, such as exp/a exp/b")
    if output is not None:
        if output.suffix.lower() != ".html":
            raise UserError(f"--output {output}: name a .html file")
        require_place(output, "--output")
        if output.name == REPORT and output.parent.resolve() in [path.resolve() for path in given]:
            raise UserError(f"--output {output}: is the report of that experiment; name another file")


def run(arguments: Arguments, conf: ExperimentConfig | None) -> int:
    """Print the metrics of evaluated experiments side by side and write their page; returns the exit status."""
    from models.results.comparison import compare, evaluated
    from models.results.report.pages import write_page

    del conf
    values = arguments.values
    found = evaluated(values.experiments)
    say(*compare(found), "")  # raises before anything is printed
    write_page([Path(name) for name, _ in found], found, values.output, values.language, say)
    return EXIT_DONE


COMMAND = Command(
    name="compare",
    line="compare evaluated experiments: differences, metrics, and a page with images and meshes",
    run=run,
    flags=(EXPERIMENTS, OUTPUT_FILE, LANGUAGE),
    check=check,
    plain_word="experiments",  # allows `--mode compare EXP_A EXP_B`
)

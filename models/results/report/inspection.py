"""The overview image and the health table of a scene. Jittor is not loaded."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence

from data.errors import UserError, one_line
from data.io.files import write_result
from data.io.images import write_image
from data.prepare.inspection.checks import findings
from data.prepare.inspection.epipolar import Finding
from data.prepare.inspection.overview import overview
from data.scenes.scene import Scene
from data.scenes.scene_checks import summary
from models.methods.conf import ExperimentConfig
from models.results.experiment import Experiment, results_folder
from models.results.report.document import escaped
from models.runs.run_files import RunFiles

FOLDER = "inspect"
FILES = PICTURE, PAGE, FIGURES = ("overview.png", "health.md", "health.json")
NARROWEST = 60  # columns; narrower terminals wrap the table
INDENT = 2


def write_inspection(conf: ExperimentConfig, scene: Scene) -> tuple[Finding, ...]:
    """Inspect the scene of `conf`; write overview.png, health.md and health.json to `<base_exp_dir>/inspect`.

    They replace those of an earlier call. Raises UserError for a folder that cannot be written.
    """
    folder = results_folder(conf)
    found = findings(scene)
    traces = RunFiles(folder / FOLDER, FILES)
    try:
        path = Experiment(conf, folder, scene, None).path
        write_image(path(FOLDER, PICTURE), overview(scene))
        write_result(path(FOLDER, PAGE), markdown(scene, found).encode())
        write_result(path(FOLDER, FIGURES), as_json(scene, found).encode())
    except UserError:
        traces.remove()
        raise
    return found


def table(found: Sequence[Finding], columns: int) -> Iterator[str]:
    """The findings for a terminal `columns` wide: check, verdict and measurement; below them the consequence."""
    width = max(len(finding.check) for finding in found) + INDENT
    columns = max(columns, NARROWEST)
    for finding in found:
        head = f"{finding.check.ljust(width)}{finding.verdict.ljust(4 + INDENT)}"
        for text, first in ((finding.figure, head), (finding.consequence, " " * (len(head) + INDENT))):
            rest = " " * (len(head) + (0 if first == head else INDENT))
            yield from textwrap.wrap(one_line(text), columns, initial_indent=first, subsequent_indent=rest)


def markdown(scene: Scene, found: Sequence[Finding]) -> str:
    """The findings as a Markdown page."""
    lines = [f"# {escaped(scene.name)}", "", escaped(summary(scene)), ""]
    lines += [f"- {escaped(note)}" for note in scene.notes]
    lines += ["", "![overview](overview.png)", "", "| check | verdict | value | consequence for training |"]
    lines += ["| --- | --- | --- | --- |"]
    for finding in found:
        cells = (finding.check, finding.verdict, finding.figure, finding.consequence)
        lines.append(f"| {' | '.join(map(escaped, cells))} |")
    return "\n".join(lines) + "\n"


def as_json(scene: Scene, found: Sequence[Finding]) -> str:
    """The findings as JSON."""
    report = {
        "scene": scene.name,
        "views": list(scene.photographs),
        "notes": list(scene.notes),
        "doubts": list(scene.doubts),
        "findings": [dataclasses.asdict(finding) for finding in found],
    }
    return json.dumps(report, indent=2) + "\n"

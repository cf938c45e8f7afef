"""What `--mode reconstruct` keeps in the experiment's folder: its plan, and the results in one place."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from data.errors import UserError
from data.io.files import read_regular, write_result
from models.checkpoints.folder import SUFFIX
from models.commands.inspection import FIGURES as HEALTH_FIGURES
from models.commands.inspection import FOLDER as HEALTH_FOLDER
from models.commands.inspection import PAGE as HEALTH_PAGE
from models.commands.inspection import PICTURE as OVERVIEW
from models.experiment import CHECKPOINTS

PLAN = "reconstruct.json"
RESULT, MESH, PAGE = "result", "mesh.ply", "result.md"
MOST_BYTES = 1 << 20  # of a plan, which is a page
# What the results consist of beside the mesh: where each is made, and how it is called.
PARTS = (
    (f"{HEALTH_FOLDER}/{OVERVIEW}", "overview.png"),
    (f"{HEALTH_FOLDER}/{HEALTH_PAGE}", "health.md"),
    (f"{HEALTH_FOLDER}/{HEALTH_FIGURES}", "health.json"),
    ("report/report.png", "report.png"),
    ("report/metrics.json", "metrics.json"),
)


@dataclass(frozen=True)
class Plan:
    """What was settled once, and what a further call keeps."""

    minutes: float
    settings: dict[str, str]  # values of the conf by their keys
    seconds_per_step: float | None = None  # as measured; None where the steps were given
    starts_over: bool = False  # the checkpoints that were there before are to go
    is_finished: bool = False
    written: float = 0.0  # when, seconds since 1970, by the clock of the file


def read_plan(folder: Path) -> Plan | None:
    """The plan of a folder; None where it has none. Raises UserError for a damaged one."""
    path = folder / PLAN
    if not os.path.lexists(path):
        return None
    try:
        value = json.loads(read_regular(path, MOST_BYTES))
        plan = Plan(**value, written=path.stat().st_mtime)
        numbers = isinstance(plan.minutes, (int, float)) and not isinstance(plan.minutes, bool)
        texts = all(isinstance(text, str) for pair in plan.settings.items() for text in pair)
        if not (numbers and texts):
            raise ValueError
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: is damaged; pass --overwrite to start afresh, or another --case") from error
    return plan


def write_plan(folder: Path, plan: Plan) -> Plan:
    """Put the plan down; returns it with its time. Raises UserError where the disk does not take it."""
    kept = {name: value for name, value in asdict(plan).items() if name != "written"}
    write_result(folder / PLAN, json.dumps(kept, indent=1).encode())
    return replace(plan, written=(folder / PLAN).stat().st_mtime)


def has_newer_checkpoint(folder: Path, plan: Plan) -> bool:
    """Whether a training has kept something since the plan was made."""
    return any(path.stat().st_mtime > plan.written for path in (folder / CHECKPOINTS).glob(f"ckpt_*{SUFFIX}"))


def collect(folder: Path) -> None:
    """Put the pictures, figures and pages that there are beside the mesh; UserError where the disk does not take it."""
    for source, name in PARTS:
        if (folder / source).is_file():
            write_result(folder / RESULT / name, (folder / source).read_bytes())

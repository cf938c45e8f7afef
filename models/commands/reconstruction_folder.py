"""What `--mode reconstruct` keeps in the experiment's folder: its plan, and the results in one place."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from data.errors import UserError, listed
from data.io.files import read_regular, remove, write_result
from data.io.streams import complain, say
from data.writers.neus import CAMERA_FILE
from models.commands.inspection import FIGURES as HEALTH_FIGURES
from models.commands.inspection import FOLDER as HEALTH_FOLDER
from models.commands.inspection import PAGE as HEALTH_PAGE
from models.commands.inspection import PICTURE as OVERVIEW
from models.watch.setbacks import STOPPED_KEY

PLAN = "reconstruct.json"
RESULT, MESH, PAGE = "result", "mesh.ply", "result.md"
MOST_BYTES = 1 << 20  # of a plan, which is a page
# The keys of the conf that a plan may set: those that `reconstruction` chooses. A plan comes from a disk.
SETTLED_KEYS = ("dataset.downscale", "dataset.test_every", "train.end_iter")
AGAIN = "what there is was made of that step, and the same call goes on from there"
REPORT_FOLDER, PICTURES = "report/", "validations_fine"
# What the results consist of beside the mesh: where each is made, and how it is called.
PARTS = (
    (f"{HEALTH_FOLDER}/{OVERVIEW}", "overview.png"),
    (f"{HEALTH_FOLDER}/{HEALTH_PAGE}", "health.md"),
    (f"{HEALTH_FOLDER}/{HEALTH_FIGURES}", "health.json"),
    (f"{REPORT_FOLDER}report.png", "report.png"),
    (f"{REPORT_FOLDER}metrics.json", "metrics.json"),
)


@dataclass(frozen=True)
class Plan:
    """What was settled once, and what a further call keeps."""

    minutes: float
    settings: dict[str, str]  # values of the conf by their keys, which are of SETTLED_KEYS
    seconds_per_step: float | None = None  # as measured; None where the steps were given
    starts_over: bool = False  # a call with --overwrite began and settled nothing yet: the next call settles a new plan
    is_finished: bool = False


def read_plan(folder: Path) -> Plan | None:
    """The plan of a folder; None where it has none. Raises UserError for a damaged one."""
    path = folder / PLAN
    if not os.path.lexists(path):
        return None
    try:
        plan = Plan(**json.loads(read_regular(path, MOST_BYTES)))
        texts = all(isinstance(text, str) for pair in plan.settings.items() for text in pair)
        flags = all(isinstance(value, bool) for value in (plan.starts_over, plan.is_finished))
        if not (_is_positive(plan.minutes) and _is_positive(plan.seconds_per_step or 1.0) and texts and flags):
            raise ValueError
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: is damaged; pass --overwrite to start afresh, or another --case") from error
    if others := sorted(set(plan.settings).difference(SETTLED_KEYS)):
        raise UserError(
            f"{path}: sets {listed(others)}, which a plan may not (only {', '.join(SETTLED_KEYS)}); remove that, or "
            "pass --overwrite to start afresh"
        )
    return plan


def _is_positive(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 < value < math.inf


def write_plan(folder: Path, plan: Plan) -> Plan:
    """Write the plan to the folder and return it. Raises UserError where the disk does not take it."""
    write_result(folder / PLAN, json.dumps(asdict(plan), indent=1).encode())
    return plan


@contextlib.contextmanager
def starting_over(folder: Path, minutes: float, data_dir: Path) -> Iterator[None]:
    """While the body replaces the scene, and from then on, a plan that is there says that it no longer holds.

    Where the body raises UserError and the scene in `data_dir` is what it was, the plan is put back.
    """
    path, cameras = folder / PLAN, data_dir / CAMERA_FILE  # the file that goes first where a scene is replaced
    before, scene = _content(path), _content(cameras)
    if before is not None:
        write_plan(folder, Plan(minutes, {}, starts_over=True))
    try:
        yield
    except UserError:
        if before is not None and _content(cameras) == scene:
            write_result(path, before)
        raise


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none that can be read."""
    try:
        return read_regular(path)
    except OSError:
        return None


def collect(folder: Path, has_mesh: bool = True) -> None:
    """Put the pictures, figures and pages that there are beside the mesh; UserError where the disk does not take it.

    Without a mesh those of an earlier one go, and the newest picture of a validation is shown.
    """
    for source, name in PARTS:
        if (folder / source).is_file() and (has_mesh or not source.startswith(REPORT_FOLDER)):
            write_result(folder / RESULT / name, (folder / source).read_bytes())
    if has_mesh:
        return
    for name in (MESH, *(name for source, name in PARTS if source.startswith(REPORT_FOLDER))):
        remove(folder / RESULT / name)
    pictures = sorted((folder / PICTURES).glob("*.png"))  # by the step, which their names begin with
    if pictures:
        write_result(folder / RESULT / "report.png", pictures[-1].read_bytes())


def why_stopped(folder: Path, end_iter: int) -> tuple[str, bool]:
    """Why a training was given up, as a sentence, and whether there is a state to make results of."""
    from models.checkpoints.folder import latest_checkpoint
    from models.experiment import CHECKPOINTS

    newest, at = latest_checkpoint(folder / CHECKPOINTS, complain), "the training stopped at step"
    if newest is None:
        return f"{at} 0 of {end_iter} and learnt nothing, so that there is no mesh; {AGAIN}", False
    why = newest.state.get(STOPPED_KEY, "its numbers did not stay finite")
    return f"{at} {newest.step} of {end_iter} because {why}; {AGAIN}", True


def drop_earlier(folder: Path, is_asked: bool) -> None:
    """Once the training is done: remove the checkpoints it replaces where --overwrite asks for it, else name them."""
    from models.checkpoints.folder import EARLIER, has_checkpoints, remove_set_aside
    from models.experiment import CHECKPOINTS

    if is_asked:
        remove_set_aside(folder / CHECKPOINTS)
    if has_checkpoints(folder / CHECKPOINTS / EARLIER):
        say(f"{folder / CHECKPOINTS / EARLIER}: holds the checkpoints of an earlier training; remove them yourself")

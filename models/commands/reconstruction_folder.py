"""The plan of a reconstruction in the experiment's folder, and the checkpoints there."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from data.errors import INVALID, UserError, listed
from data.io.clock import Spent, Times, added
from data.io.files import read_regular, write_result
from data.io.streams import complain, say
from data.scenes.readers.neus import CAMERA_FILE
from models.checkpoints.folder import EARLIER, SUFFIX, back_up, has_checkpoints, latest_checkpoint, remove_backup
from models.results.experiment import CHECKPOINTS
from models.runs.run_files import FolderLock
from models.runs.stops import STOPPED_KEY
from models.training.record import recorded

PLAN = "reconstruct.json"
MOST_BYTES = 1 << 20  # of a plan
MOST = 2**53  # of its numbers
STEPS = re.compile(r"0*[1-9][0-9]{0,14}")
# The keys of the conf that `reconstruction` chooses. A plan file with other keys is rejected.
END_ITER = "train.end_iter"
SETTLED_KEYS = ("dataset.downscale", "dataset.test_every", "dataset.validation_views", END_ITER)
AGAIN = "the results are of that step; repeat the command to continue from there"


@dataclass(frozen=True)
class ReconstructionPlan:
    """The settings that later calls keep."""

    minutes: float  # of the whole command; the maximum if `is_auto`
    settings: dict[str, str]  # values of the conf by key, of SETTLED_KEYS
    seconds_per_step: float | None = None  # measured; None if the user set the number of steps
    starts_over: bool = False  # a call with --overwrite was interrupted: the next call makes a new plan
    is_finished: bool = False
    times: Times = field(default_factory=dict)  # of the phases of earlier calls
    longest: int | None = None  # the maximum number of steps if it is doubled while that helps; None otherwise

    @property
    def is_auto(self) -> bool:
        """Whether the plan is one of --minutes auto."""
        return self.longest is not None

    def after(self, times: Times) -> ReconstructionPlan:
        """A copy that also contains the times of another call."""
        return replace(self, times=added(self.times, times))


def read_plan(folder: Path) -> ReconstructionPlan | None:
    """The plan of a folder; None if there is none. Raises UserError for a damaged one."""
    path = folder / PLAN
    if not os.path.lexists(path):
        return None
    try:
        content = json.loads(read_regular(path, MOST_BYTES))
        times = {name: Spent(**spent) for name, spent in content.pop("times", {}).items()}
        plan = ReconstructionPlan(**content, times=times)
        texts = all(isinstance(text, str) for pair in plan.settings.items() for text in pair)
        seconds = [1.0 + value for spent in plan.times.values() for value in vars(spent).values()]
        flags = all(isinstance(value, bool) for value in (plan.starts_over, plan.is_finished))
        counts = (plan.minutes, plan.seconds_per_step or 1.0, plan.longest or 1, *seconds)
        has_steps = plan.starts_over or STEPS.fullmatch(plan.settings[END_ITER]) is not None
        if not (all(map(_is_positive, counts)) and texts and flags and has_steps):
            raise ValueError
    except (OSError, *INVALID) as error:
        raise UserError(f"{path}: is damaged; pass --overwrite to start again, or another --case") from error
    if others := sorted(set(plan.settings).difference(SETTLED_KEYS)):
        raise UserError(
            f"{path}: sets {listed(others)}, but a plan may set only {', '.join(SETTLED_KEYS)}; remove them, or pass "
            "--overwrite to start again"
        )
    return plan


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MOST


def write_plan(folder: Path, plan: ReconstructionPlan) -> ReconstructionPlan:
    """Write the plan to the folder and return it; raises UserError if writing fails."""
    write_result(folder / PLAN, json.dumps(asdict(plan), indent=1).encode())
    return plan


@contextlib.contextmanager
def starting_over(folder: Path, minutes: float, data_dir: Path) -> Iterator[None]:
    """Invalidate an existing plan before the body replaces the scene.

    If the body raises UserError and the scene in `data_dir` is unchanged, the plan is restored.
    """
    path, cameras = folder / PLAN, data_dir / CAMERA_FILE  # the file that is removed first when a scene is replaced
    before, scene = _content(path), _content(cameras)
    if before is not None:
        write_plan(folder, ReconstructionPlan(minutes, {}, starts_over=True))
    try:
        yield
    except UserError:
        if before is not None and _content(cameras) == scene:
            write_result(path, before)
        raise


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None if it cannot be read."""
    try:
        return read_regular(path)
    except OSError:
        return None


def score_curve(folder: Path) -> list[list[float]]:
    """[step, seconds, PSNR in dB] of the scored photographs, at each checkpoint in ascending order."""
    newest = latest_checkpoint(folder / CHECKPOINTS, complain)
    return [] if newest is None else [list(entry) for entry in recorded(newest.state).curve]


def trained_so_far(folder: Path) -> tuple[int, float]:
    """The step of the newest checkpoint, and the seconds of its training; zeros if there is none."""
    newest = latest_checkpoint(folder / CHECKPOINTS, complain)
    return (0, 0.0) if newest is None else (newest.step, float(newest.state.get("seconds", 0.0)))


def trained_further(folder: Path, plan: ReconstructionPlan) -> ReconstructionPlan:
    """The plan; if a training has more steps since its results were written, with these, and not finished."""
    step = trained_so_far(folder)[0] if plan.is_finished else 0
    return plan if step <= int(plan.settings[END_ITER]) else replace(with_steps(plan, step), is_finished=False)


def with_steps(plan: ReconstructionPlan, steps: int) -> ReconstructionPlan:
    """The plan with another number of steps."""
    return replace(plan, settings={**plan.settings, END_ITER: str(steps)})


def why_stopped(folder: Path, end_iter: int) -> tuple[str, bool]:
    """Why a training stopped early, as a sentence, and whether there is a checkpoint for results."""

    newest = latest_checkpoint(folder / CHECKPOINTS, complain)
    if newest is None:
        why = "the training stopped before its first checkpoint, so there is no mesh"
        return f"{why}; repeat the command to try again", False
    why = newest.state.get(STOPPED_KEY, "NaN or Inf occurred")
    return f"the training stopped at step {newest.step} of {end_iter} because {why}; {AGAIN}", True


def set_checkpoints_aside(folder: Path) -> None:
    """Move old checkpoints away, so that training starts at step 0; raises UserError if another training is running."""
    if has_checkpoints(folder / CHECKPOINTS, SUFFIX):
        lock = FolderLock(folder)
        try:
            back_up(folder / CHECKPOINTS)
        finally:
            lock.release()


def drop_earlier(folder: Path, is_asked: bool) -> None:
    """After the training: remove the checkpoints of an earlier one (with --overwrite), else print their folder."""
    if is_asked:
        remove_backup(folder / CHECKPOINTS)
    if has_checkpoints(folder / CHECKPOINTS / EARLIER):
        say(f"{folder / CHECKPOINTS / EARLIER}: contains checkpoints of an earlier training; remove them if not needed")

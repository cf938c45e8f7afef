"""The plan of a reconstruction: image size, groups of photographs, number of steps; its file, and the checkpoints.

The training gets the time that the other parts of the command leave, and its steps follow.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data.errors import INVALID, UserError, listed
from data.io.clock import Spent, Times, added, ends_at, slowdown, so_far
from data.io.files import read_regular, write_result
from data.io.images import image_size, list_images
from data.io.streams import complain, say
from data.limits import excerpt
from data.scenes.config import DatasetConfig
from data.scenes.readers.neus import CAMERA_FILE, FRAME_FILE, read_frame, read_neus
from models.checkpoints.folder import (
    EARLIER,
    SUFFIX,
    back_up,
    checkpoint_files,
    has_checkpoints,
    latest_checkpoint,
    remove_backup,
)
from models.commands.command import Selected
from models.conf import ExperimentConfig
from models.plan import LEAST_STEPS, EarlierPlan
from models.requests import AUTO, TEXTURE, MeshRequest
from models.results.experiment import CHECKPOINTS
from models.results.report.reconstruction import pixel_size
from models.runs.run_files import FolderLock
from models.runs.stops import STOPPED_KEY
from models.training.checkpoint import recorded

if TYPE_CHECKING:
    from models.runs.measured import Pace


# Seconds of what comes after the steps, without other processes on two cores: the report and the start of each mode;
# and per photograph, visibility and colours of a mesh of ITS_RESOLUTION.
CLOSING, PER_PHOTOGRAPH, ITS_RESOLUTION = 12.0, 1.0, 512
# Fraction of the training's time for steps; images, meshes and checkpoints take the rest. It is rather too large: a
# training that ends in the last tenth of its schedule loses nothing, one that ends early loses its time.
STEPPING = 0.95
OPTIONAL = 0.5  # of the command, after which no further attempt at cameras goes on
DEPTH, MEASURING = 0.1, 0.05  # of the command, at most, for depth maps, and about for measuring
WORTH = 0.1  # of the command: a training is continued for more
COLD = 10.0  # seconds of compiling from which on the cache was cold


@dataclass(frozen=True)
class Budget:
    """The time of a command."""

    seconds: float  # of --minutes
    started: float  # moment of time.perf_counter()
    after: float = 0.0  # seconds of mesh, metrics and report, estimated, without other processes
    compiling: float = 0.0  # seconds of compiling on a cold cache, which --minutes does not include

    def for_scene(self, photographs: int, resolution: int, details: float) -> Budget:
        """The budget with the time after the training, for a mesh of --resolution with `details` seconds for these."""
        colours = PER_PHOTOGRAPH * photographs * (resolution / ITS_RESOLUTION) ** 2
        return replace(self, after=CLOSING + colours + details)

    def moment(self, share: float) -> float:
        """The moment of time.perf_counter() at which this share of the command is over."""
        return self.started + self.compiling + share * self.seconds

    def end_of_training(self, slower: float) -> float:
        """The moment of time.perf_counter() when the training must end; `slower`: the `slowdown` of what follows."""
        return self.moment(1.0) - slower * self.after

    def steps(self, pace: Pace) -> int:
        """The steps that fit from now on; negative if the time is over before the first one."""
        return int((self.end_of_training(pace.slowdown) - time.perf_counter()) * STEPPING / pace.seconds)

    def more_steps(self, step: int, seconds: float, slower: float) -> int:
        """The steps that fit into the time that a training of `step` steps left, which took `seconds`.

        At most as many as it had; 0 if the time is not WORTH it.
        """
        left = self.end_of_training(slower) - time.perf_counter()
        return min(step, int(left * STEPPING * step / max(seconds, 1e-3))) if left > WORTH * self.seconds else 0


def on_cold_cache(times: Times) -> float:
    """The seconds of compiling in these phases, 0 where the cache was warm."""
    spent = times["compiling"].wall if "compiling" in times else 0.0
    return spent if spent > COLD * slowdown() else 0.0


def announce(given: Budget, pace: Pace, steps: int, fitting: int) -> bool:
    """Print what the command will take; returns whether its time can be kept with `steps`, where `fitting` fit."""
    if given.compiling:
        say(
            f"compiling took {given.compiling:.0f} s, which --minutes does not include; images and mesh compile a few "
            "more kernels, once per machine"
        )
    passed = time.perf_counter() - given.started
    training, after = steps * pace.seconds / STEPPING, pace.slowdown * given.after
    can_be_kept = steps <= fitting
    if not can_be_kept:
        say(
            f"--minutes {given.seconds / 60:g} is too short: {passed:.0f} s have passed, mesh and report "
            f"take about {after:.0f} s, and {steps} steps are the least"
        )
    say(
        f"the whole command will take about {(passed + training + after) / 60:.1f} minutes: {passed:.0f} s so far, "
        f"training {training:.0f} s, mesh and report {after:.0f} s"
    )
    return can_be_kept


PLAN_FILE = "reconstruct.json"
EARLIER_ONES = f"{CHECKPOINTS}/{EARLIER}"
MOST_PLAN_BYTES = 1 << 20  # of a plan
MOST_NUMBER = 2**53  # of its numbers
STEP_COUNT = re.compile(r"0*[1-9][0-9]{0,14}")
DETAILS_KEY = "train.details"
# The keys of the conf that `reconstruction` chooses. A plan file with other keys is rejected.
END_ITER = "train.end_iter"
TEST_EVERY, TEST_VIEWS, VALIDATION_VIEWS = (
    f"dataset.{name}" for name in ("test_every", "test_views", "validation_views")
)
SETTLED_KEYS = ("dataset.downscale", TEST_EVERY, TEST_VIEWS, VALIDATION_VIEWS, END_ITER)
AGAIN = "the results are of that step; repeat the command to continue from there"
MOST_MINUTES = 60.0 * 24 * 30
# Images are reduced to about this longer side, pixels. Beyond ten minutes it grows with the square root of the minutes,
# as the number of sampled pixels grows with the minutes. Larger images are not slower, but their detail is not learnt.
LONGEST_SIDE, ITS_MINUTES = 512, 10.0
# With at least SPARES photographs every eighth one is held out: a test photograph, or one of DECIDING validation
# photographs if as many test photographs remain. With fewer, training photographs decide: a small scene needs them.
SPARES, EVERY, DECIDING = 16, 8, 4
DOUBLINGS = 3  # the first training of AUTO has 1 / 2^DOUBLINGS of the steps of AUTO_MINUTES
# Seconds of the details of a mesh without other processes on two cores, and the pixels of a photograph from which on
# they take no longer: see grey_photographs.MOST_VERTICES.
DETAILS, ALL_DETAILS = 80.0, 1_400_000
TESTED = 8  # photographs from which on some test the details that the others give
LARGEST_SHARE = 1.0 / 3.0  # of the command
GROWTH = 1 / 3  # further steps after photographs were added or removed, relative to those before
LEAST_DOUBLING_GAIN = 0.5  # dB by which twice the steps must increase the PSNR of the scored photographs


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
    photographs: tuple[str, ...] = ()  # of the scene, in its order; (): not known
    goes_on: bool = False  # from the newest checkpoint before photographs were added or removed

    @property
    def is_auto(self) -> bool:
        """Whether the plan is one of --minutes auto."""
        return self.longest is not None

    def after(self, times: Times) -> ReconstructionPlan:
        """A copy that also contains the times of another call."""
        return replace(self, times=added(self.times, times))


def read_plan(folder: Path) -> ReconstructionPlan | None:
    """The plan of a folder; None if there is none. Raises UserError for a damaged one."""
    path = folder / PLAN_FILE
    if not os.path.lexists(path):
        return None
    try:
        content = json.loads(read_regular(path, MOST_PLAN_BYTES))
        times = {name: Spent(**spent) for name, spent in content.pop("times", {}).items()}
        names = tuple(content.pop("photographs", ()))
        plan = ReconstructionPlan(**content, times=times, photographs=names)
        texts = all(isinstance(text, str) for pair in plan.settings.items() for text in pair)
        seconds = [1.0 + value for spent in plan.times.values() for value in vars(spent).values()]
        flags = all(isinstance(value, bool) for value in (plan.starts_over, plan.is_finished, plan.goes_on))
        texts = texts and all(isinstance(name, str) for name in names)
        longest = 1 if plan.longest is None else plan.longest
        pace = 1.0 if plan.seconds_per_step is None else plan.seconds_per_step
        counts = (plan.minutes, pace, longest, *seconds)
        has_steps = plan.starts_over or STEP_COUNT.fullmatch(plan.settings[END_ITER]) is not None
        numbers = all(isinstance(count, (int, float)) and not isinstance(count, bool) for count in counts)
        if not (
            numbers and all(0 < count < MOST_NUMBER for count in counts) and texts and flags and has_steps
        ) or not isinstance(longest, int):
            raise ValueError
    except (OSError, *INVALID) as error:
        raise UserError(f"{path}: is damaged; pass --overwrite to start again, or another --case") from error
    if others := sorted(set(plan.settings).difference(SETTLED_KEYS)):
        raise UserError(
            f"{path}: sets {listed(others)}, but a plan may set only {', '.join(SETTLED_KEYS)}; remove them, or pass "
            "--overwrite to start again"
        )
    return plan


def write_plan(folder: Path, plan: ReconstructionPlan) -> ReconstructionPlan:
    """Write the plan to the folder and return it; raises UserError if writing fails."""
    write_result(folder / PLAN_FILE, json.dumps(asdict(plan), indent=1).encode())
    return plan


@contextlib.contextmanager
def starting_over(folder: Path, minutes: float, data_dir: Path) -> Iterator[None]:
    """Invalidate an existing plan before the body replaces the scene.

    If the body raises UserError and the scene in `data_dir` is unchanged, the plan is restored.
    """
    path, cameras = (
        folder / PLAN_FILE,
        data_dir / CAMERA_FILE,
    )  # the file that is removed first when a scene is replaced
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


def photographs_of(data_dir: Path) -> tuple[str, ...]:
    """The photographs of a prepared scene in its order; () without one."""
    frame = read_frame(data_dir / FRAME_FILE)
    return () if frame is None else tuple(frame.photographs.values())


def for_more_photographs(folder: Path, plan: ReconstructionPlan, data_dir: Path) -> ReconstructionPlan:
    """The plan; if photographs were added or removed, one that goes on with all of them, whose checkpoints are aside.

    Photographs that were held out stay so, and every eighth of the new ones is a test photograph, too.
    """
    before, now = plan.photographs, photographs_of(data_dir)
    if before == now or not before:
        return plan
    settings = {key: value for key, value in plan.settings.items() if key not in (TEST_EVERY, TEST_VIEWS)}
    validation = json.loads(plan.settings.get(VALIDATION_VIEWS, "[]"))
    every = int(plan.settings.get(TEST_EVERY, 0))
    test = json.loads(plan.settings.get(TEST_VIEWS, str(list(range(0, len(before), every)) if every else [])))
    if validation or test:
        kept = {before[view] for view in test if view not in validation}
        added = [name for name in now if name not in before][EVERY - 1 :: EVERY]
        settings[TEST_VIEWS] = str([view for view, name in enumerate(now) if name in kept or name in added])
        scored = {before[view] for view in validation}
        settings[VALIDATION_VIEWS] = str([view for view, name in enumerate(now) if name in scored])
    newest = latest_checkpoint(folder / CHECKPOINTS, complain) or latest_checkpoint(folder / EARLIER_ONES, complain)
    steps = 0 if newest is None else newest.step
    steps = max(int(plan.settings[END_ITER]), steps + max(LEAST_STEPS, round(GROWTH * steps)))
    say(f"{len(now)} photographs instead of {len(before)}: the training goes on, {END_ITER} = {steps}")
    set_checkpoints_aside(folder)
    longest = steps if plan.is_auto else None
    plan = replace(with_steps(replace(plan, settings=settings), steps), photographs=now, longest=longest)
    return write_plan(folder, replace(plan, goes_on=newest is not None, is_finished=False, seconds_per_step=None))


def to_go_on_from(folder: Path, plan: ReconstructionPlan) -> Path | None:
    """The checkpoint with which a training of more photographs begins; None if it has its own, or begins anew."""
    files = checkpoint_files(folder / EARLIER_ONES)
    return files[max(files)] if plan.goes_on and files and not has_checkpoints(folder / CHECKPOINTS, SUFFIX) else None


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


def require_possible(minutes: float | str | None, output: Path | None, color: str | None) -> None:
    """Raises UserError for minutes out of range, and options of a mesh that do not apply."""
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= MOST_MINUTES
    if not is_number and minutes not in (None, AUTO):
        given = f"{minutes:g}" if isinstance(minutes, float) else excerpt(minutes).strip("'")
        raise UserError(f"--minutes {given}: must be above 0 and at most {MOST_MINUTES:g}")
    for name, is_given in (("--output", output is not None), ("--colour texture", color == TEXTURE)):
        if is_given:
            raise UserError(
                f"{name}: --mode reconstruct writes result/mesh.ply, with colours per vertex; leave it out, and change "
                "--output, and --colour if need be, in the last command of result.md afterwards"
            )


def chosen_settings(selected: Selected, conf: ExperimentConfig, minutes: float) -> dict[str, str]:
    """Settings chosen for these photographs unless the user set them: downscale and groups of photographs."""
    dataset, settings = conf.dataset, {}
    pictures = list_images(Path(dataset.data_dir) / "image")
    longest = max(max(image_size(path)) for path in pictures)
    side = LONGEST_SIDE * math.sqrt(max(1.0, minutes / ITS_MINUTES))
    times = min(64, round(longest / side))
    if dataset.downscale == 1 and selected.given("dataset.downscale") is None and times > 1:
        settings["dataset.downscale"] = str(times)
    names = ("test_every", "test_views", "test_dir", "validation_views", "train_views")
    is_split = any(selected.given(f"dataset.{name}") is not None or getattr(dataset, name) for name in names)
    if len(pictures) >= SPARES and not is_split:
        settings["dataset.test_every"] = str(EVERY)
        held_out = range(0, len(pictures), EVERY)
        between = len(held_out) // DECIDING
        if between > 1:
            settings["dataset.validation_views"] = str(list(held_out[between // 2 :: between][:DECIDING]))
    for key, value in settings.items():
        say(f"{key} = {value} (--set {key}=... chooses another)")
    return settings


def decide_details(request: MeshRequest, conf: ExperimentConfig, minutes: float) -> float:
    """The seconds that the details of a mesh take, 0 for a mesh without; prints the decision and its reason.

    The scene in `dataset.data_dir` is one of NeuS. A flag has precedence over the key.
    """
    photographs = list_images(Path(conf.dataset.data_dir) / "image")
    seconds, key = seconds_of_details(photographs), conf.train.details
    has_details, reason = request.has_details, " (--details)" if request.has_details else " (--no-details)"
    if has_details is None and not isinstance(key, str):
        has_details, reason = key, f" ({DETAILS_KEY} = {str(key).lower()})"
    elif has_details is None:
        against = _against_details(conf.dataset, len(photographs), request.resolution, seconds / (60.0 * minutes))
        has_details = not against
        adds, leaves_out = f"({DETAILS_KEY} = true adds them)", f"({DETAILS_KEY} = false leaves them out)"
        reason = f", because {against} {adds}" if against else f" {leaves_out}"
    say(f"details: {f'yes, about {seconds:.0f} s' if has_details else 'no'}{reason}")
    return seconds if has_details else 0.0


def _against_details(dataset: DatasetConfig, photographs: int, resolution: int, share: float) -> str:
    """Why details would not improve a mesh of this many grid points per side; "" if they may. `share`: of the time."""
    if photographs < TESTED:
        return f"{TESTED} photographs are needed for some to test what the others show"
    if share > LARGEST_SHARE:
        return f"they would take {share:.0%} of the time"
    parsed = read_neus(Path(dataset.data_dir), dataset)
    radius = 1.0 if parsed.scale_mat is None else float(np.cbrt(np.linalg.det(parsed.scale_mat[:3, :3])))
    pixel, cell = pixel_size(parsed) / radius, 2.0 / resolution
    return f"a pixel shows {pixel:.4f} radii, and a cell of the mesh is {cell:.4f}" if pixel > cell else ""


def seconds_of_details(photographs: Sequence[Path]) -> float:
    """The seconds that the details of a mesh take, by the size of these photographs."""
    return DETAILS * min(1.0, math.prod(image_size(photographs[0])) / ALL_DETAILS)


def require_same_settings(
    selected: Selected, plan: ReconstructionPlan, minutes: float | str | None, folder: Path
) -> None:
    """Raises UserError if the command line has other minutes or values of keys than the existing reconstruction."""
    planned = AUTO if plan.is_auto else plan.minutes
    if minutes not in (planned, None):
        words = planned if plan.is_auto else f"{planned:g}"
        raise UserError(
            f"{folder}: contains a reconstruction with --minutes {words}; pass that to continue it, --overwrite to "
            "start again, or another --case"
        )
    for key, value in plan.settings.items():
        given = selected.given(key)
        is_earlier = plan.goes_on and key == END_ITER  # of the command before photographs were added
        if given not in (None, value) and not (is_earlier and float(given) <= float(value)):
            raise UserError(
                f"--set {key}={given}: {folder} contains a reconstruction with {key} = {value}; leave it out to "
                "continue it, pass --overwrite to start again, or another --case"
            )


def timed_plan(
    conf: ExperimentConfig, settings: dict[str, str], given: Budget, is_auto: bool
) -> tuple[ReconstructionPlan, Budget | None]:
    """The plan with the number of steps that fit into the command, and its budget; None if that cannot be kept.

    Makes the depth maps and measures the time of a step. If `is_auto`, the first training has 1 / 2^DOUBLINGS of these
    steps.
    """
    from models.checkpoints.scenes import measured, training_scene
    from models.methods.registry import decide
    from models.runs.measured import measured_pace

    scene = training_scene(conf)
    with ends_at(lambda: time.perf_counter() + DEPTH * given.seconds):
        decided = decide(conf.model, conf.train, measured(scene), EarlierPlan())
    say("measuring the time of a step (Jittor compiles each kernel at its first use, once per machine)")
    pace = measured_pace(conf.model, conf.train, scene, decided, MEASURING * given.seconds)
    given = replace(given, compiling=on_cold_cache(so_far()))
    rounds = 2**DOUBLINGS if is_auto else 1
    fitting = given.steps(pace)
    steps = max(LEAST_STEPS, int(conf.train.warm_up_end) + 1, fitting // rounds)
    minutes = given.seconds / 60.0
    until = f"at first, at most {steps * rounds}" if is_auto else f"for {minutes:g} minutes in all"
    say(f"a step takes {1000 * pace.seconds:.0f} ms here: {END_ITER} = {steps} {until}")
    longest = steps * rounds if is_auto else None
    plan = ReconstructionPlan(minutes, {**settings, END_ITER: str(steps)}, pace.seconds, longest=longest)
    return plan, given if announce(given, pace, steps * rounds, fitting) else None


def longer(plan: ReconstructionPlan, curve: Sequence[Sequence[float]]) -> ReconstructionPlan | None:
    """The plan with twice the steps; None if it is the longest, or if the last doubling hardly increased the score.

    curve: rows of step, seconds, PSNR in dB. With the new plan the training is resumed, and its learning rate increases
    again because the schedule is longer.
    """
    if plan.longest is None:
        return None
    steps = int(plan.settings[END_ITER])
    if 2 * steps > plan.longest:
        return None
    scores = {step: score for step, _, score in curve}
    if steps in scores and steps // 2 in scores:
        gain = scores[steps] - scores[steps // 2]
        words = (
            f"PSNR of the scored photographs: {scores[steps]:.1f} dB after {steps} steps, {gain:+.1f} dB since step "
            f"{steps // 2}"
        )
        if gain < LEAST_DOUBLING_GAIN:
            say(f"{words}: the training is long enough")
            return None
        say(f"{words}: {END_ITER} = {2 * steps}")
    return with_steps(plan, 2 * steps)

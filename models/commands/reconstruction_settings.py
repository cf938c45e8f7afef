"""The settings that a reconstruction chooses: image size, groups of photographs and the number of steps."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from data.errors import UserError
from data.io.clock import ends_at, so_far
from data.io.images import image_size, list_images
from data.io.streams import say
from data.limits import shown
from models.commands.command import ExperimentConfig, Selected
from models.commands.reconstruction_folder import END_ITER, ReconstructionPlan, with_steps
from models.plan import LEAST_STEPS, Before
from models.requests import AUTO, TEXTURE
from models.runs.budget import DEPTH, MEASURING, Budget, announce, on_cold_cache

MOST_MINUTES = 60.0 * 24 * 30
# Images are reduced to about this longer side, pixels. Beyond ten minutes it grows with the square root of the minutes,
# as the number of sampled pixels grows with the minutes. Larger images are not slower, but their detail is not learnt.
LONGEST_SIDE, ITS_MINUTES = 512, 10.0
# With at least SPARES photographs every eighth one is held out: a test photograph, or one of DECIDING validation
# photographs if as many test photographs remain. With fewer, training photographs decide: a small scene needs them.
SPARES, EVERY, DECIDING = 16, 8, 4
DOUBLINGS = 3  # the first training of AUTO has 1 / 2^DOUBLINGS of the steps of AUTO_MINUTES
LEAST_GAIN = 0.5  # dB by which twice the steps must increase the PSNR of the scored photographs


def require_possible(minutes: float | str | None, output: Path | None, color: str | None) -> None:
    """Raises UserError for minutes out of range, and options of a mesh that do not apply."""
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool) and 0 < minutes <= MOST_MINUTES
    if not is_number and minutes not in (None, AUTO):
        given = f"{minutes:g}" if isinstance(minutes, float) else shown(minutes)
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
        if given not in (None, value):
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
    from models.checkpoints.measurements import measured
    from models.checkpoints.scenes import training_scene
    from models.methods.registry import decide
    from models.runs.measured import measured_pace

    scene = training_scene(conf)
    with ends_at(lambda: time.perf_counter() + DEPTH * given.seconds):
        decided = decide(conf.model, conf.train, measured(scene), Before())
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
        if gain < LEAST_GAIN:
            say(f"{words}: the training is long enough")
            return None
        say(f"{words}: {END_ITER} = {2 * steps}")
    return with_steps(plan, 2 * steps)

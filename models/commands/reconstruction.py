"""The steps of `--mode reconstruct`: prepare, inspect, measure the speed, train, extract the mesh, evaluate.

Every step except the measurement is a mode with its flags; its command line is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from data.errors import UserError
from data.io import clock
from data.io.clock import Times, ends_at, phase, scheduled, slowdown
from data.io.images import list_images
from data.io.streams import say
from data.scenes.readers.neus import FRAME_FILE, read_frame
from models.commands import evaluate, inspect, prepare, train, validate_image, validate_mesh
from models.commands.command import (
    EXIT_DONE,
    EXIT_EMPTY_SURFACE,
    EXIT_NOT_FINITE,
    Arguments,
    Command,
    ExperimentConfig,
    Mode,
)
from models.commands.conf import given_value, key_of, read_conf
from models.commands.printed import command_line, given_flags, of_the_scene
from models.commands.reconstruction_ahead import compiled_ahead
from models.commands.reconstruction_folder import (
    END_ITER,
    HTML,
    MESH,
    PAGE,
    RESULT,
    ReconstructionPlan,
    add_figures,
    collect,
    drop_earlier,
    read_plan,
    score_curve,
    set_checkpoints_aside,
    starting_over,
    trained_further,
    trained_so_far,
    why_stopped,
    with_steps,
    write_pages,
    write_plan,
)
from models.commands.reconstruction_page import PHASE_OF, UNKNOWN, page, read_figures, trust, warnings
from models.commands.reconstruction_settings import chosen_settings, longer, require_same_settings, timed_plan
from models.commands.reconstruction_size import size_and_cameras
from models.commands.reconstruction_time import OPTIONAL, Budget
from models.commands.shared import choose_device
from models.config.program import found_conf
from models.requests import AUTO, AUTO_MINUTES, PIECES, UNIT, VIEWS

CONF = Path("confs/fast.conf")
NO_SURFACE = (
    "no surface was found, so there is no mesh: see report.html; train for more minutes in another --case, or check "
    "with --mode inspect whether the region of interest contains the object"
)


def reconstruct(arguments: Arguments, case: str, minutes: float | str | None, times: Times) -> int:
    """From photographs to a mesh; returns the exit status of the first step that fails, or EXIT_DONE.

    `minutes`: of the whole command, AUTO, or None to continue an existing reconstruction and otherwise as AUTO;
    `times`: of this call's phases. Raises UserError as the steps, and if the folder contains another reconstruction.
    """
    arguments = replace(arguments, case=case, conf=arguments.conf or found_conf(CONF))
    conf = read_conf(arguments)
    folder = _checked_folder(arguments, conf)
    plan = None if arguments.values.overwrite else read_plan(folder)
    if plan is not None and plan.starts_over:
        plan = None
    if plan is not None:
        require_same_settings(arguments, plan, minutes, folder)
    is_auto = minutes in (AUTO, None)
    most = AUTO_MINUTES if minutes is None or isinstance(minutes, str) else minutes
    given = Budget(60.0 * (most if plan is None else plan.minutes), time.perf_counter())
    data_dir = Path(conf.dataset.data_dir)
    again = starting_over(folder, most, data_dir) if arguments.values.overwrite else contextlib.nullcontext()
    ahead = compiled_ahead(arguments, arguments.conf) if plan is None else contextlib.nullcontext()
    with again, ahead, ends_at(lambda: given.moment(OPTIONAL)):
        _run(_step(arguments, prepare.COMMAND), 1)
    from models.checkpoints.scenes import first_scene_kept

    given = given.for_scene(len(list_images(data_dir / "image")), arguments.values.resolution)
    with first_scene_kept():
        if plan is None:
            plan, kept = _first_look(arguments, conf, given, is_auto, folder)
        else:
            say(f"step 2 of 5: already inspected, see {folder / RESULT / 'health.md'}")
            plan = trained_further(folder, plan)
            kept = None if plan.seconds_per_step is None else given
        if plan.is_finished and (folder / RESULT / MESH).is_file():
            ways = f"--overwrite repeats it; flags of the mesh belong to the last command of {PAGE}, which repeats it"
            say(f"{folder / RESULT}: was already complete ({ways})")
            return EXIT_DONE
        status = _train_and_mesh(arguments, plan, folder, times, kept)
        say(clock.line(times))
        return status


def _checked_folder(arguments: Arguments, conf: ExperimentConfig) -> Path:
    """The experiment's folder; raises UserError for mistakes that can be detected before the work starts."""
    from models.checkpoints.folder import has_checkpoints
    from models.methods.capacity import require_batch, require_mesh
    from models.results.experiment import CHECKPOINTS, results_folder

    conf = choose_device(arguments, conf, is_trained=True)
    require_batch(conf)
    require_mesh(arguments.values.resolution, f"--resolution {arguments.values.resolution}")
    folder = results_folder(conf)
    is_kept = not arguments.values.overwrite and has_checkpoints(folder / CHECKPOINTS, "")
    if is_kept and read_plan(folder) is None:
        raise UserError(
            f"{folder / CHECKPOINTS}: contains checkpoints that --mode reconstruct did not make; pass --overwrite to "
            "start again, or another --case"
        )
    return folder


def _first_look(
    arguments: Arguments, conf: ExperimentConfig, given: Budget, is_auto: bool, folder: Path
) -> tuple[ReconstructionPlan, Budget | None]:
    """Inspect the scene, print warnings, and choose the settings of the training; the results of `timed_plan`."""
    minutes = given.seconds / 60.0
    settings = chosen_settings(arguments, conf, minutes)
    arguments = _with(arguments, settings)
    _run(_step(arguments, inspect.COMMAND), 2)
    collect(folder)
    for line in warnings(read_figures(folder / RESULT / "health.json")):
        say(f"before the training: {line}")
    if (steps := given_value(arguments.overrides, END_ITER)) is not None:
        longest = read_conf(arguments).train.end_iter if is_auto else None
        plan, kept = ReconstructionPlan(minutes, {**settings, END_ITER: steps}, longest=longest), None
    else:
        plan, kept = timed_plan(choose_device(arguments, read_conf(arguments)), settings, given, is_auto)
    set_checkpoints_aside(folder)
    return write_plan(folder, plan), kept


def _train_and_mesh(
    arguments: Arguments, plan: ReconstructionPlan, folder: Path, times: Times, given: Budget | None
) -> int:
    """Train within `given`, if it is not None, extract the mesh and evaluate; returns the exit status."""
    plan, status = _trained(arguments, plan, folder, given)
    arguments = _with(arguments, plan.settings)
    if status not in (EXIT_DONE, EXIT_NOT_FINITE):
        write_plan(folder, plan.after(times))
        say(f"repeat the command{' without --overwrite' if arguments.values.overwrite else ''} to continue")
        return status
    if status == EXIT_DONE:
        drop_earlier(folder, arguments.values.overwrite)
    stopped, has_state = ("", True) if status == EXIT_DONE else why_stopped(folder, read_conf(arguments).train.end_iter)
    notes, has_mesh = [stopped] if stopped else [], False
    if has_state:
        status = _run(_mesh_step(arguments, folder), 4)
        has_mesh = status == EXIT_DONE
        if status == EXIT_EMPTY_SURFACE:
            notes.append(NO_SURFACE)
            _warn_on_report(folder)
            _run(_step(arguments, validate_image.COMMAND), 5)
        elif has_mesh:
            status = _evaluated(arguments, folder)
    collect(folder, has_mesh)
    if status == EXIT_DONE or notes:
        add_figures(folder, plan.after(times).times)
        _conclude(arguments, folder, notes)
    if notes:
        return EXIT_NOT_FINITE
    if status == EXIT_DONE:
        write_plan(folder, replace(plan, is_finished=True))
    return status


def _evaluated(arguments: Arguments, folder: Path) -> int:
    """Evaluate the mesh; returns the exit status. Without anything to compare it with, there are no metrics."""
    from models.results.references import NoReferencesError

    try:
        return _run(_step(_of_checkpoint(arguments), evaluate.COMMAND, mesh_file=folder / RESULT / MESH), 5)
    except NoReferencesError as error:
        say(f"no metrics: {error}")
        return EXIT_DONE


def _trained(
    arguments: Arguments, plan: ReconstructionPlan, folder: Path, given: Budget | None
) -> tuple[ReconstructionPlan, int]:
    """Train, and go on with more steps as long as `longer` returns a plan, or time is left.

    Returns the last plan, and the exit status of its training.
    """
    since = scheduled()
    while True:
        with ends_at(None if given is None else lambda: given.end_of_training(slowdown(since))):
            status = _run(_step(_with(arguments, plan.settings), train.COMMAND, is_continue=True), 3)
        if status != EXIT_DONE:
            return plan, status
        step, seconds = trained_so_far(folder)
        if 0 < step < int(plan.settings[END_ITER]):
            return write_plan(folder, with_steps(plan, step)), status
        more = longer(plan, score_curve(folder)) if plan.is_auto else None
        if not plan.is_auto and given is not None and (steps := given.more_steps(step, seconds, slowdown(since))):
            say(f"time is left: {END_ITER} = {step + steps}")
            more = with_steps(plan, step + steps)
        if more is None:
            return plan, status
        plan = write_plan(folder, more)


def _warn_on_report(folder: Path) -> None:
    """Add a warning about the missing surface to the training's report."""
    from models.results.report.added import with_warning
    from models.results.report.document import REPORT

    with_warning(folder / REPORT, NO_SURFACE)


def _mesh_step(arguments: Arguments, folder: Path) -> Arguments:
    """The step that extracts the mesh, coloured from images of twice the size, which costs no training time.

    Without masks also --clean views, which removes arbitrary unobserved surfaces.
    """
    dataset, wanted = read_conf(arguments).dataset, arguments.values.clean
    is_masked = (Path(dataset.data_dir) / "mask").is_dir()
    finer = _with(_of_checkpoint(arguments), {"dataset.downscale": str(-(-dataset.downscale // 2))})
    clean = VIEWS if wanted == PIECES and not is_masked else wanted
    return _step(finer, validate_mesh.COMMAND, output=folder / RESULT / MESH, clean=clean, mesh_file=None)


def _conclude(arguments: Arguments, folder: Path, notes: Sequence[str]) -> None:
    """Write the result page and print the reliability of the result; `notes` report missing parts."""
    health, figures = (read_figures(folder / RESULT / name) for name in ("health.json", "metrics.json"))
    conf = read_conf(arguments)
    more = _with(arguments, {END_ITER: str(2 * conf.train.end_iter)})
    again = [
        f"# continue the training to {2 * conf.train.end_iter} steps, and write all results again",
        _as_typed(_step(more, train.COMMAND, is_continue=True)),
        _as_typed(_step(_of_checkpoint(arguments), arguments.command)),
        f"# extract {MESH} again",
        _as_typed(_mesh_step(arguments, folder)),
    ]
    has_mesh = (folder / RESULT / MESH).is_file()
    measured = folder / RESULT / MESH if has_mesh and arguments.values.frame != UNIT else None
    size = size_and_cameras(conf.dataset, measured)
    frame = read_frame(Path(conf.dataset.data_dir) / FRAME_FILE) or UNKNOWN
    text = page(arguments.case, health, figures, again, notes, has_mesh, size, frame)
    write_pages(folder, arguments.case, text, figures, arguments.values.language)
    say(*notes)
    if has_mesh:
        say(*(f"reliability: {line}" for line in trust(figures, frame)))
    say(f"{folder / RESULT}: {', '.join(sorted(path.name for path in (folder / RESULT).iterdir()))}")
    say(f"open {folder / RESULT / HTML} in a browser: mesh, reliability, metrics and further commands")


def _step(arguments: Arguments, command: Command, **flags: object) -> Arguments:
    """The arguments of a step; `flags`: values of its flags other than those given."""
    given = {"overwrite": arguments.values.overwrite and command is prepare.COMMAND, **flags}
    values = argparse.Namespace(**vars(arguments.values) | given)
    return replace(arguments, command=command, mode=Mode(command.name), values=values)


def _run(step: Arguments, number: int) -> int:
    """Print the command line of a step and run it; returns its exit status."""
    say(f"step {number} of 5: {_as_typed(step)}")
    with phase(PHASE_OF[step.command.name]):
        return step.command.run(step, read_conf(step))


def _with(arguments: Arguments, settings: Mapping[str, str]) -> Arguments:
    """The arguments with other values of the conf."""
    kept = (text for text in arguments.overrides if key_of(text) not in settings)
    return replace(arguments, overrides=(*kept, *(f"{key}={value}" for key, value in settings.items())))


def _of_checkpoint(arguments: Arguments) -> Arguments:
    """The arguments without the number of steps: a result has that of the newest checkpoint."""
    return replace(arguments, overrides=tuple(text for text in arguments.overrides if key_of(text) != END_ITER))


def _as_typed(step: Arguments) -> str:
    """The command line of a step."""
    flags = given_flags(step.values, step.command.flags)
    return command_line([*of_the_scene(step, step.conf), "--mode", step.command.name, *flags])

"""The modes of scenes, photographs and the machine, and the list of all modes.

A new mode is a function and a `Command`. Modules that load Jittor or NumPy are imported in the actions.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import UserError
from data.io.files import make_folder, require_place
from data.io.streams import say
from models.commands import functions
from models.commands.command import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_OF_SIGNAL,
    Arguments,
    Command,
    command_line,
    scene_flags,
)
from models.commands.interface import reconstruct
from models.commands.model_modes import (
    EVALUATE,
    EXPORT_SPLATS,
    INTERPOLATE,
    RENDER,
    TRAIN,
    VALIDATE_IMAGE,
    VALIDATE_MESH,
    VIEW,
    check_view,
    evaluation_request,
    exit_status,
    mesh_request,
    viewer_keys,
    viewer_place,
)
from models.config.program import FAST, find_conf
from models.machine.ranks import joined
from models.mesh.output import require_valid
from models.requests import UNIT, DeviationRequest
from models.results import request_checks as checks
from models.results.trained import choose_device

if TYPE_CHECKING:
    from models.conf import ExperimentConfig


def check_comparison(values: argparse.Namespace) -> None:
    """Raises UserError for too few experiments, and for an unusable --output."""
    from models.results.report.document import REPORT

    folders, output = values.experiments or (), values.output
    if len(folders) < 2:
        raise UserError("--mode compare: name the folders of two experiments or more, such as exp/a exp/b")
    if output is not None:
        if output.suffix.lower() != ".html":
            raise UserError(f"--output {output}: name a .html file")
        require_place(output, "--output")
        if output.name == REPORT and output.parent.resolve() in [path.resolve() for path in folders]:
            raise UserError(f"--output {output}: is the report of that experiment; name another file")


def run_comparison(arguments: Arguments, conf: ExperimentConfig | None) -> int:
    """Print the metrics of evaluated experiments side by side and write their page; Jittor is not loaded."""
    from models.results.metric_tables import compare, evaluated, write_page

    del conf
    values = arguments.values
    runs = evaluated(values.experiments)
    say(*compare(runs), "")  # raises before anything is printed
    write_page([Path(name) for name, _ in runs], runs, values.output, values.language, say)
    return EXIT_DONE


COMPARE = Command(
    name="compare",
    line="compare evaluated experiments: differences, metrics, and a page with images and meshes",
    run=run_comparison,
    check=check_comparison,
    plain_word="experiments",  # allows `--mode compare EXP_A EXP_B`
)


def check_preparation(values: argparse.Namespace) -> None:
    """Raises UserError if --images is missing."""
    if values.images is None:
        raise UserError(f"--mode {values.mode}: give --images FOLDER, or a video")


def check_prepare(values: argparse.Namespace) -> None:
    """Raises UserError if --images or --case is missing, or --case is a path."""
    check_preparation(values)
    case = values.case
    is_name = case not in ("", ".", "..") and os.path.basename(case) == case and "\0" not in case
    if values.conf is None and not is_name:
        raise UserError("--mode prepare: give --case NAME, a plain name; the scene is written to ./public_data/NAME")


def preparation(values: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `functions.prepare` besides the conf."""
    names = ("images", "masks", "frames", "boxes", "marker", "scale", "is_panorama", "cameras", "lens", "overwrite")
    return {name: getattr(values, name) for name in names} | {"scale": values.scale or ()}


def run_prepare(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Prepare the scene folder."""
    functions.prepare(conf, **preparation(arguments.values))
    return EXIT_DONE


def after_prepare(arguments: Arguments) -> list[str]:
    """The next commands, one per line."""
    words = scene_flags(arguments, arguments.conf or find_conf(FAST), "dataset.roi")  # the scene contains the region
    return [f"next: {command_line([*words, *more])}" for more in (["--mode", "inspect"], [])]


PREPARE = Command(
    name="prepare",
    line="estimate cameras from photographs or a video (--images); create the scene folder ./public_data/NAME",
    run=run_prepare,
    continues=True,
    check=check_prepare,
    plain_word="images",
    next_steps=after_prepare,
    conf_of_case=FAST,  # with masks or without; its scene folder is ./public_data/CASE_NAME
)


def run_inspect(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Inspect the scene, and show it with --view."""
    from data.prepare.metric import distance_text, parse_points
    from models.checkpoints.scenes import scene_cache

    with scene_cache():
        if arguments.values.measure is not None:
            points = parse_points(arguments.values.measure)
            say(distance_text(points, functions.load_scene(conf).frame))
            return EXIT_DONE
        if arguments.values.reference is not None:
            return _run_deviation(arguments.values, conf)
        functions.inspect(conf)
        scene = functions.load_scene(conf)
    if arguments.values.view:
        from models.viewer.sessions import look_at_scene

        keys, place = viewer_keys(arguments, conf), viewer_place(arguments)
        look_at_scene(scene, keys, conf.dataset.downscale, place, say)
    return EXIT_DONE


def _run_deviation(values: argparse.Namespace, conf: ExperimentConfig) -> int:
    """Print the deviation of the mesh from a reference, and write its map."""
    from data.prepare.load import parse_scene
    from models.results.deviation import OUTPUTS, compare
    from models.results.experiment import results_folder
    from models.results.report.reconstruction import HEALTH_FOLDER, MESH, RESULT

    folder, options = results_folder(conf), (values.reference, values.in_place, values.tolerance)
    mesh, frame = values.mesh_file or folder / RESULT / MESH, parse_scene(conf.dataset).frame
    say(*compare(DeviationRequest(*options), mesh, frame, make_folder(folder, HEALTH_FOLDER)).lines())
    say(f"written: {folder / HEALTH_FOLDER}: {', '.join(OUTPUTS)}")
    return EXIT_DONE


def check_inspection(values: argparse.Namespace) -> None:
    """Raises UserError for flags that do not apply, and if the viewer is needed and not installed."""
    check_view(values)
    of_deviation = {"--in_place": values.in_place, "--tolerance": values.tolerance, "--mesh": values.mesh_file}
    if values.reference is None and (given := [name for name, value in of_deviation.items() if value]):
        raise UserError(f"{', '.join(given)}: needs --compare FILE")
    if values.reference is not None and values.frame == UNIT:
        raise UserError("--compare: lengths are those of the world frame; leave --frame unit out, also for the mesh")
    works = {"--compare": values.reference, "--measure": values.measure, "--view": values.view}
    if len(given := [name for name, value in works.items() if value]) > 1:
        raise UserError(f"{', '.join(given)}: give only one of them")


INSPECT = Command(
    name="inspect",
    line="write overview.png (cameras, photographs, region of interest) and a table of possible problems",
    run=run_inspect,
    check=check_inspection,
    conf_of_case=FAST,
)


def run_plan(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Measure and print the table of memory and speed; nothing is written."""
    from models.checkpoints.scenes import training_scene
    from models.results.capacity import require_batch

    conf = choose_device(conf, arguments.device, arguments.gpu, is_trained=True)
    require_batch(conf)
    scene = training_scene(conf)  # before Jittor, which the next import loads
    from models.results.plan_table import table

    for text in table(conf, scene):
        say(text)
    return EXIT_DONE


PLAN = Command(
    name="plan",
    line="measure memory and speed for several values of n_importance, or how many Gaussians fit; writes nothing",
    run=run_plan,
)


def run_doctor(arguments: Arguments, conf: ExperimentConfig | None) -> int:
    """Print a line for each check of the machine; nothing is written except Jittor's compilation cache."""
    from models.commands.doctor import examine

    del conf
    if line := joined().check():
        say(line)
        joined().close()
        if not joined().is_writer:
            return EXIT_DONE
    is_ok = examine(arguments.device, arguments.gpu, lambda line: say(line.text()))
    say("all checks passed" if is_ok else "each line marked WRONG ends with the remedy")
    return EXIT_DONE if is_ok else EXIT_FAILED


DOCTOR = Command(
    name="doctor",
    line="check the machine: driver, GPU, toolkit, compilers, and every operation against its reference",
    run=run_doctor,
    is_shared=True,
    needs_conf=False,
)


def check_reconstruction(values: argparse.Namespace) -> None:
    """Raises UserError for flags that do not apply."""
    for name, is_given in (("--is_continue", values.is_continue), ("--checkpoint", values.checkpoint is not None)):
        if is_given:
            raise UserError(f"{name}: does not apply to --mode reconstruct, which continues by itself; leave it out")
    from models.commands.reconstruction_plan import require_possible

    check_preparation(values)
    checks.require_evaluation(evaluation_request(values))
    require_possible(values.minutes, values.output, values.colour)
    require_valid(mesh_request(values))


def run_reconstruction(arguments: Arguments, conf: ExperimentConfig) -> int:
    """Run the steps; the exit status is that of the first one that fails."""
    del conf  # without --case it is that of the bundled scene
    values, notes = arguments.values, list[str]()

    def work() -> None:
        result = reconstruct(
            **preparation(values),
            minutes=values.minutes,
            conf=arguments.conf or FAST,
            case=arguments.case,
            overrides=arguments.overrides,
            mesh=mesh_request(values),
            evaluation=evaluation_request(values),
            device=arguments.device,
            gpu=arguments.gpu,
            language=values.language,
        )
        notes.extend(result.notes)

    status = exit_status(work)
    if status > EXIT_OF_SIGNAL:
        say(f"repeat the command{' without --overwrite' if values.overwrite else ''} to continue")
    return EXIT_FAILED if notes else status


RECONSTRUCT = Command(
    name="reconstruct",
    line="create a mesh, images and metrics from photographs or a video (--images); resumes when repeated",
    run=run_reconstruction,
    continues=True,
    check=check_reconstruction,
    plain_word="images",
    conf_of_case=FAST,
)

# In the order of the help page.
COMMANDS = (
    *(TRAIN, VALIDATE_MESH, VALIDATE_IMAGE, INTERPOLATE, RENDER, EVALUATE, EXPORT_SPLATS),
    *(COMPARE, VIEW, PREPARE, RECONSTRUCT, INSPECT, PLAN, DOCTOR),
)
BY_NAME = {command.name: command for command in COMMANDS}
# For the message about an unknown mode: first the modes whose value is their name.
MODE_NAMES = tuple(command.title for command in sorted(COMMANDS, key=lambda command: command.is_named is not None))

"""From photographs to a mesh: prepare, inspect, measure the speed, train, extract the mesh, evaluate.

The command line that does the same as a step is printed before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from data.errors import UserError
from data.io import clock
from data.io.clock import Times, as_values, ends_at, phase, recorded, scheduled, slowdown
from data.io.files import remove, write_result
from data.io.images import list_images
from data.io.search_path import safe_environment
from data.io.streams import complain, say
from data.prepare.beside import folder_beside
from data.scenes.readers.neus import FRAME_FILE, read_frame
from models.checkpoints.folder import has_checkpoints
from models.checkpoints.scenes import scene_cache
from models.commands import functions
from models.commands import reconstruction_plan as plans
from models.commands.command import Selected, changed_flags, command_line, key_of, scene_flags
from models.commands.flags import DTU, OF_MODE
from models.commands.functions import Reconstruction
from models.commands.reconstruction_plan import (
    END_ITER,
    OPTIONAL,
    Budget,
    ReconstructionPlan,
    read_plan,
    with_steps,
    write_plan,
)
from models.conf import ExperimentConfig
from models.config.program import PROGRAM
from models.machine.ranks import end_with_parent
from models.machine.toolchain import jittor_home
from models.mesh.extraction import EmptySurfaceError
from models.mesh.mesh import referenced
from models.mesh.output import require_valid
from models.requests import (
    AUTO,
    AUTO_MINUTES,
    PIECES,
    UNIT,
    UTM,
    VERTEX,
    VIEWS,
    EvaluationRequest,
    MeshRequest,
    TrainingRequest,
)
from models.results.callback import Callback
from models.results.capacity import require_batch, require_mesh
from models.results.experiment import CHECKPOINTS, results_folder
from models.results.metric_tables import DETAILS_FILE, FOLDER, JSON_FILE, read_json, write_json
from models.results.references import NoReferencesError
from models.results.report import reconstruction as report
from models.results.report.document import REPORT
from models.results.report.reconstruction import MESH, OF_DETAILS, PAGE, RESULT, collect, read_figures, warnings
from models.results.request_checks import require_evaluation, require_training
from models.results.trained import TrainedModel, choose_device
from models.runs.stops import Interrupted
from models.training.checkpoint import DivergedError

NO_SURFACE = (
    "no surface was found, so there is no mesh: see report.html; train for more minutes in another --case, or check "
    "with --mode inspect whether the region of interest contains the object"
)


@dataclass(frozen=True)
class Work(Selected):
    """What a reconstruction is to do."""

    photographs: Mapping[str, Any]  # the arguments of `prepare` besides conf and `overwrite`
    minutes: float | str | None
    mesh: MeshRequest
    evaluation: EvaluationRequest
    overwrite: bool
    language: str | None
    callbacks: Sequence[Callback]
    has_details: bool = False  # decided, if the request leaves it to the program

    def read(self) -> ExperimentConfig:
        """The conf with the overrides."""
        return functions.read_conf(self.conf or "", self.case, self.overrides)

    def open_model(self, conf: ExperimentConfig) -> TrainedModel:
        """The model of the newest checkpoint."""
        return functions.open_model(conf, device=self.device, gpu=self.gpu)

    def with_values(self, settings: Mapping[str, str]) -> Work:
        """The work with other values of the conf."""
        others = self.without(*settings)
        return replace(others, overrides=(*others.overrides, *(f"{key}={value}" for key, value in settings.items())))

    def typed(self, mode: str, **others: Any) -> str:
        """The command line of a mode; `others`: values of flags other than those given."""
        values = {**vars(self), **self.photographs, **vars(self.evaluation), **vars(self.mesh), "overwrite": False}
        values |= {"colour": None if self.mesh.color == VERTEX else self.mesh.color, **others}
        values |= {"protocol": self.evaluation.dtu and DTU, "scale": self.photographs["scale"] or None}
        words = ["--mode", mode, *changed_flags(values, OF_MODE[mode])]
        return command_line([*scene_flags(self, self.conf), *words])

    @contextlib.contextmanager
    def step(self, number: int, mode: str, name: str, **others: Any) -> Iterator[ExperimentConfig]:
        """Print the command line of a step, and count the time of the body for the phase `name`; gives the conf."""
        say(f"step {number} of 5: {self.typed(mode, **others)}")
        with phase(name):
            yield self.read()


def run(work: Work) -> Reconstruction:
    """The results; raises as `interface.reconstruct`."""
    require_training(TrainingRequest(device=work.device, gpu=work.gpu, language=work.language))
    require_evaluation(work.evaluation)
    require_valid(work.mesh)
    plans.require_possible(work.minutes, work.mesh.output, work.mesh.color)
    with recorded() as times:
        folder, notes = _reconstructed(work, times)
    result = folder / RESULT
    path = result / MESH if (result / MESH).is_file() else None
    return Reconstruction(result, path, read_figures(result / "metrics.json"), tuple(notes))


def _reconstructed(work: Work, times: Times) -> tuple[Path, list[str]]:
    """The folder of the experiment, and the notes of `Reconstruction`; `times`: of this call's phases."""
    conf = work.read()
    folder = _checked_folder(work, conf)
    plan = None if work.overwrite else read_plan(folder)
    plan = None if plan is None or plan.starts_over else plan
    if plan is not None:
        plans.require_same_settings(work, plan, work.minutes, folder)
    most = AUTO_MINUTES if work.minutes is None or isinstance(work.minutes, str) else work.minutes
    given = Budget(60.0 * (most if plan is None else plan.minutes), time.perf_counter())
    data_dir = Path(conf.dataset.data_dir)
    again = plans.starting_over(folder, most, data_dir) if work.overwrite else contextlib.nullcontext()
    ahead = contextlib.nullcontext() if plan is not None else compile_ahead(work, _has_masks(work.photographs))
    attempts = ends_at(lambda: given.moment(OPTIONAL))
    with again, ahead, attempts, work.step(1, "prepare", "scene", overwrite=work.overwrite):
        if plan is not None and not plan.photographs:
            plan = plans.write_plan(folder, replace(plan, photographs=plans.photographs_of(data_dir)))
        functions.prepare(conf, **work.photographs, overwrite=work.overwrite)
    if work.mesh.frame == UTM:
        referenced(read_frame(data_dir / FRAME_FILE))
    pictures = list_images(data_dir / "image")
    with scene_cache():
        if plan is not None:
            trained = plans.for_more_photographs(folder, plan, data_dir)
            if trained is plan:
                say(f"step 2 of 5: already inspected, see {folder / RESULT / 'health.md'}")
            else:
                _inspected(work.with_values(trained.settings), folder)
            plan = plans.trained_further(folder, trained)
            if plan.is_finished and (folder / RESULT / MESH).is_file():
                ways = (
                    f"--overwrite repeats it; flags of the mesh belong to the last command of {PAGE}, which repeats it"
                )
                say(f"{folder / RESULT}: was already complete ({ways})")
                return folder, []
        details = plans.decide_details(work.mesh, conf, given.seconds / 60.0)
        work = replace(work, has_details=details > 0.0)
        given = given.for_scene(len(pictures), work.mesh.resolution, details)
        if plan is None:
            plan, budget = _first_look(work, given, folder)
        else:
            budget = None if plan.seconds_per_step is None else given
        notes = _train_and_mesh(work, plan, folder, times, budget)
    say(clock.line(times))
    return folder, notes


def _has_masks(photographs: Mapping[str, Any]) -> bool:
    """Whether the scene will probably have masks, before anything is checked or read."""
    source = photographs["images"]
    is_folder = os.path.isdir(source) and os.access(source, os.R_OK)
    return bool(photographs["masks"]) or (is_folder and folder_beside(Path(source)) is not None)


def _checked_folder(work: Work, conf: ExperimentConfig) -> Path:
    """The experiment's folder; raises UserError for mistakes that can be detected before the work starts."""
    conf = choose_device(conf, work.device, work.gpu, is_trained=True)
    require_batch(conf)
    require_mesh(work.mesh.resolution, f"--resolution {work.mesh.resolution}")
    folder = results_folder(conf)
    if not work.overwrite and has_checkpoints(folder / CHECKPOINTS, "") and read_plan(folder) is None:
        raise UserError(
            f"{folder / CHECKPOINTS}: contains checkpoints that --mode reconstruct did not make; pass --overwrite to "
            "start again, or another --case"
        )
    return folder


def _first_look(work: Work, given: Budget, folder: Path) -> tuple[ReconstructionPlan, Budget | None]:
    """Inspect the scene, print warnings, and choose the settings of the training; the results of `timed_plan`."""
    minutes, is_auto = given.seconds / 60.0, work.minutes in (AUTO, None)
    settings = plans.chosen_settings(work, work.read(), minutes)
    work = work.with_values(settings)
    conf = _inspected(work, folder)
    if (number := work.given(END_ITER)) is not None:
        longest = conf.train.end_iter if is_auto else None
        plan, budget = ReconstructionPlan(minutes, {**settings, END_ITER: number}, longest=longest), None
    else:
        plan, budget = plans.timed_plan(choose_device(conf, work.device, work.gpu), settings, given, is_auto)
    plans.set_checkpoints_aside(folder)
    return write_plan(folder, plan), budget


def _inspected(work: Work, folder: Path) -> ExperimentConfig:
    """Inspect the scene, and print warnings; returns the conf."""
    with work.step(2, "inspect", "checks") as conf:
        functions.inspect(conf)
    collect(folder)
    for line in warnings(read_figures(folder / RESULT / "health.json")):
        say(f"before the training: {line}")
    return conf


def _train_and_mesh(
    work: Work, plan: ReconstructionPlan, folder: Path, times: Times, budget: Budget | None
) -> list[str]:
    """Train within the budget, if there is one, extract the mesh and evaluate; returns the notes."""
    plan, is_trained = _trained(work, plan, folder, times, budget)
    work = work.with_values(plan.settings)
    notes, has_state, has_mesh = [], True, False
    if is_trained:
        plans.drop_earlier(folder, work.overwrite or plan.goes_on)
    else:
        stopped, has_state = plans.why_stopped(folder, work.read().train.end_iter)
        notes.append(stopped)
    if has_state:
        has_mesh = _extracted(work, folder)
        if has_mesh:
            _evaluated(work, folder)
        else:
            notes.append(NO_SURFACE)
            from models.results.report.training_page import with_warning  # imports Jittor

            with_warning(folder / REPORT, NO_SURFACE)
            with work.step(5, "validate_image", "images") as conf, work.open_model(conf) as model:
                functions.render(model, 0)
    collect(folder, has_mesh)
    if (path := folder / RESULT / JSON_FILE).is_file():
        figures = {report.PHASES: as_values(plan.after(times).times), report.CURVE: plans.score_curve(folder)}
        write_json(path, read_json(path) | read_figures(folder / RESULT / DETAILS_FILE) | figures)
    _conclude(work, folder, notes)
    if not notes:
        write_plan(folder, replace(plan, is_finished=True))
    return notes


def _trained(
    work: Work, plan: ReconstructionPlan, folder: Path, times: Times, budget: Budget | None
) -> tuple[ReconstructionPlan, bool]:
    """Train, and go on with more steps as long as `longer` returns a plan, or time is left.

    Returns the last plan, and whether its training finished. Raises Interrupted, with the plan written.
    """
    since = scheduled()
    while True:
        start = plans.to_go_on_from(folder, plan)
        until = None if budget is None else lambda: budget.end_of_training(slowdown(since))
        step = work.with_values(plan.settings).step(3, "train", "training", is_continue=not start, checkpoint=start)
        try:
            with ends_at(until), step as conf:
                functions.train(
                    conf,
                    is_continue=start is None,
                    checkpoint=start,
                    device=work.device,
                    gpu=work.gpu,
                    language=work.language,
                    callbacks=work.callbacks,
                )
        except Interrupted:
            write_plan(folder, plan.after(times))
            say(clock.line(times))
            raise
        except DivergedError as error:
            complain(f"error: {error}")
            return plan, False
        last, seconds = plans.trained_so_far(folder)
        if 0 < last < int(plan.settings[END_ITER]):
            return write_plan(folder, with_steps(plan, last)), True
        more = plans.longer(plan, plans.score_curve(folder)) if plan.is_auto else None
        if not plan.is_auto and budget is not None and (number := budget.more_steps(last, seconds, slowdown(since))):
            say(f"time is left: {END_ITER} = {last + number}")
            more = with_steps(plan, last + number)
        if more is None:
            return plan, True
        plan = write_plan(folder, more)


def _mesh_step(work: Work, folder: Path) -> Work:
    """The work with the options of the mesh, coloured from images of twice the size, which costs no training time.

    Without masks also --clean views, which removes arbitrary unobserved surfaces.
    """
    dataset, wanted = work.read().dataset, work.mesh.clean
    is_masked = (Path(dataset.data_dir) / "mask").is_dir()
    clean = VIEWS if wanted == PIECES and not is_masked else wanted
    # The number of steps is that of the newest checkpoint.
    finer = work.without(END_ITER).with_values({"dataset.downscale": str(-(-dataset.downscale // 2))})
    mesh = replace(work.mesh, output=folder / RESULT / MESH, clean=clean, has_details=work.has_details or None)
    return replace(finer, mesh=mesh)


def _extracted(work: Work, folder: Path) -> bool:
    """Extract the mesh; returns whether there is a surface."""
    work = _mesh_step(work, folder)
    for name in OF_DETAILS:
        remove(folder / FOLDER / name)
        remove(folder / RESULT / name)
    try:
        with work.step(4, "validate_mesh", "mesh") as conf, work.open_model(conf) as model:
            functions.extract_mesh(model, work.mesh)
    except EmptySurfaceError as error:
        complain(f"error: {error}")
        return False
    return True


def _evaluated(work: Work, folder: Path) -> None:
    """Evaluate the mesh. Without anything to compare it with, there are no metrics."""
    work, mesh, file = work.without(END_ITER), work.mesh, folder / RESULT / MESH
    request = replace(work.evaluation, mesh=MeshRequest(mesh.resolution, mesh.threshold), mesh_file=file)
    request = replace(request, frame=mesh.frame, up=mesh.up, is_object=mesh.is_object)
    try:
        with work.step(5, "evaluate", "report", mesh_file=file) as conf, work.open_model(conf) as model:
            functions.evaluate(model, request, work.language)
    except NoReferencesError as error:
        say(f"no metrics: {error}")


def _conclude(work: Work, folder: Path, notes: Sequence[str]) -> None:
    """Write the result page and print the reliability of the result; `notes` report missing parts."""
    names = ("health.json", "metrics.json", DETAILS_FILE)
    health, figures, without_details = (read_figures(folder / RESULT / name) for name in names)
    figures |= without_details
    conf = work.read()
    doubled = 2 * conf.train.end_iter
    again = [
        f"# continue the training to {doubled} steps, and write all results again",
        work.with_values({END_ITER: str(doubled)}).typed("train", is_continue=True),
        work.without(END_ITER).typed("reconstruct"),
        f"# extract {MESH} again",
        _mesh_step(work, folder).typed("validate_mesh"),
    ]
    has_mesh = (folder / RESULT / MESH).is_file()
    measured = folder / RESULT / MESH if has_mesh and work.mesh.frame != UNIT else None
    size = report.size_and_cameras(conf.dataset, measured)
    frame = read_frame(Path(conf.dataset.data_dir) / FRAME_FILE) or report.UNKNOWN
    text = report.page(work.case, health, figures, again, notes, has_mesh, size, frame)
    report.write_pages(folder, work.case, text, figures, work.language)
    say(*notes)
    if has_mesh:
        say(*(f"reliability: {line}" for line in report.trust(figures, frame)))
    say(f"{folder / RESULT}: {', '.join(sorted(path.name for path in (folder / RESULT).iterdir()))}")
    say(f"open {folder / RESULT / report.HTML} in a browser: mesh, reliability, metrics and further commands")


# What a recipe compiles is compiled by another process while COLMAP, which needs no Jittor, estimates the cameras.
SCENE = PROGRAM.parent / "data" / "demo"
STEPS, RESOLUTION = 64, 64
SOURCE_SUFFIXES = (".py", ".h", ".hpp")
NICE = 4  # of 19: estimating cameras comes first, but on a busy machine 10 would wait for minutes
# The child's program: the modes that follow the cameras, on the bundled scene.
MODES_PROGRAM = """
import json, os, sys
sys.path[:] = sys.argv[2:]
from exp_runner import main
os._exit(next((status for status in map(main, json.loads(sys.argv[1])) if status), 0))
"""


@contextlib.contextmanager
def compile_ahead(selected: Selected, is_masked: bool) -> Iterator[None]:
    """Compile while the body runs, and wait for the rest, which would be compiled next anyway.

    An exception of the body ends the child, as does the end of this process. A failure changes nothing: the kernels are
    then compiled when they are used. A mark in Jittor's cache says what is compiled already.
    """
    words = _commands(selected, is_masked, Path("FOLDER"))
    mark = Path(jittor_home()) / ".cache" / "jittor" / f"ahead-{_key(words)}"
    if mark.exists() or not SCENE.is_dir():
        yield
        return
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        _started(_commands(selected, is_masked, Path(folder))) as child,
    ):
        yield
        if child.poll() is None:
            say("compiling what training and mesh use, once per machine; later commands start at once")
        with phase("compiling"):
            is_done = child.wait() == 0
    if is_done:
        with contextlib.suppress(OSError, UserError):
            write_result(mark, b"")


def _commands(selected: Selected, is_masked: bool, folder: Path) -> list[list[str]]:
    """The command lines of the child, with results below `folder`."""
    ours: tuple[str, ...] = (f"dataset.data_dir={SCENE}", "dataset.test_every=8", f"general.base_exp_dir={folder}")
    ours += (f"{END_ITER}={STEPS}", f"train.val_freq={STEPS}")
    others = (text for text in selected.overrides if key_of(text).partition(".")[0] in ("model", "train"))
    unmasked = () if is_masked else ("train.mask_weight=0",)
    scene = scene_flags(replace(selected, case="", overrides=(*others, *ours, *unmasked)), selected.conf)
    resolution = ["--resolution", str(RESOLUTION)]
    mesh = ["--mode", "validate_mesh", "--clean", "views", "--output", str(folder / "mesh.ply"), *resolution]
    return [[*scene, *mode] for mode in (["--mode", "train"], mesh, ["--mode", "evaluate", *resolution])]


def _key(words: Sequence[Sequence[str]]) -> str:
    """Of what is compiled: the commands and the program's sources."""
    digest = hashlib.sha256(json.dumps([words, sys.version]).encode())
    for path in sorted((PROGRAM.parent / "models").rglob("*.*")):
        if path.suffix in SOURCE_SUFFIXES:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _started(commands: Sequence[Sequence[str]]) -> Iterator[subprocess.Popen]:
    """The child process, which is killed at the end of the block."""
    words = [sys.executable, "-P", "-c", MODES_PROGRAM, json.dumps(commands), str(PROGRAM.parent), *sys.path]
    no = subprocess.DEVNULL
    parent = os.getpid()

    def give_way() -> None:
        os.nice(NICE)
        end_with_parent(signal.SIGKILL, parent)

    child = subprocess.Popen(words, env=safe_environment(), preexec_fn=give_way, stdin=no, stdout=no, stderr=no)
    try:
        yield child
    finally:
        child.kill()
        child.wait()

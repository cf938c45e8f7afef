"""The command line: `python exp_runner.py --help`.

Everything that can be checked from the arguments and the conf is checked before Jittor is loaded.
"""

import os
import sys

if __name__ == "__main__":  # before anything else is imported: a json.py beside the photographs is not to be run
    _search_path = sys.path[:]
    sys.path[:] = [os.path.dirname(os.path.realpath(__file__))]
    import data.io.search_path
    import models  # noqa: F401 (found now, it is found later)

    data.io.search_path.guard_process(_search_path)

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from data.errors import UserError
from data.io.quiet import silence_libraries
from data.io.streams import complain, report_crash, say, secure

if TYPE_CHECKING:
    from data.config import DatasetConfig
    from models.arguments import Arguments
    from models.experiment import Experiment
    from models.kinds.conf import ExperimentConfig
    from models.watch.logger import RunLogger

PROGRAM_FOLDER = Path(__file__).resolve().parent
DEFAULT_CONF = Path("confs/demo.conf")
INSPECTED_CONF = Path("confs/womask.conf")  # where --mode inspect --case NAME looks for a scene
EXIT_EMPTY_SURFACE = 1
EXIT_DIVERGED = 1
EXIT_CRASH = 1  # as Python ends after a traceback
EXIT_USER_ERROR = 2
MEMORY_SENTENCE = (
    "memory ran out: end other programs, lower --resolution or train.mesh_resolution for meshes, train.render_chunk "
    "for pictures, train.batch_size and train.ray_chunk for training; --mode plan tells what fits"
)
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (default: the process's own); returns the exit status."""
    try:
        from models.arguments import parse_arguments

        _require_current_folder()
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
        return _run(arguments, read_conf(arguments))
    except UserError as error:
        return _complain(str(error), EXIT_USER_ERROR)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_INTERRUPTED)
    except (MemoryError, RuntimeError) as error:
        from models.machine.available import is_allocation_failure

        if not is_allocation_failure(error):
            raise
        return _complain(MEMORY_SENTENCE, EXIT_USER_ERROR)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("data", "models"):
            raise
        return _complain(
            f"the Python package {error.name} is missing; run `pip install -r requirements.txt`", EXIT_USER_ERROR
        )


def _require_current_folder() -> None:
    """Raises UserError where the folder the program was started in is gone: relative paths lead nowhere then."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError("the current folder was deleted or cannot be entered: cd to one that is there") from error


def read_conf(arguments: "Arguments") -> "ExperimentConfig":
    """The conf that --conf, --case, --set and --seed describe; raises UserError where it cannot be used.

    Without --conf it is ./confs/demo.conf; where there is none, the program's own, and then the paths of the scene
    that do not exist from here are taken from the program's folder too. To inspect a scene by its name, it is
    ./confs/womask.conf.
    """
    from models.kinds.conf import load_config

    default = DEFAULT_CONF
    if arguments.case and arguments.conf is None and arguments.mode.name != "prepare":
        if arguments.mode.name != "inspect":
            raise UserError(
                f"--case {arguments.case}: the default conf, {DEFAULT_CONF}, trains on the bundled scene; "
                "give a conf too, such as --conf confs/wmask.conf"
            )
        default = INSPECTED_CONF
    conf_path = arguments.conf or default
    is_elsewhere = arguments.conf is None and not default.exists()
    if is_elsewhere:
        conf_path = PROGRAM_FOLDER / default
    conf = load_config(conf_path, arguments.case, arguments.overrides)
    is_bundled = is_elsewhere and default == DEFAULT_CONF
    return replace(conf, dataset=_rebased(conf.dataset)) if is_bundled else conf


def _rebased(dataset: "DatasetConfig") -> "DatasetConfig":
    """The dataset with each path that is missing here looked for in the program's folder."""
    paths = {name: getattr(dataset, name) for name in ("data_dir", "test_dir", "reference_mesh")}
    moved = {name: str(PROGRAM_FOLDER / path) for name, path in paths.items() if path and not os.path.exists(path)}
    return replace(dataset, **moved)


def _run(arguments: "Arguments", conf: "ExperimentConfig") -> int:
    """Open the experiment, load Jittor, and do what the mode says; returns the exit status."""
    if arguments.mode.name == "prepare":
        return _prepare(arguments, conf)
    if arguments.mode.name == "inspect":
        return _inspect(conf)
    from models.kinds.capacity import require_mode
    from models.machine import backend
    from models.surface.extraction import EmptySurfaceError
    from models.watch.interrupts import DivergedError, Interrupted
    from models.watch.logger import RunLogger

    backend.select(arguments.device, arguments.gpu)
    require_mode(conf, arguments.mode.name, arguments.resolution)
    if arguments.mode.name == "plan":
        return _plan(conf)
    if arguments.mode.name == "replay":
        return _replay(arguments)
    experiment = _open(arguments, conf)
    resumed_at = experiment.checkpoint.step if experiment.checkpoint else None
    try:
        with RunLogger(experiment.folder, resumed_at=resumed_at) as log:
            _dispatch(arguments, experiment, log)
    except (UserError, ModuleNotFoundError, MemoryError):
        experiment.withdraw()
        raise
    except EmptySurfaceError as error:
        return _complain(str(error), EXIT_EMPTY_SURFACE)
    except Interrupted as stop:
        return _complain(f"{stop}; go on with --is_continue", stop.status)
    except DivergedError as error:
        return _complain(str(error), EXIT_DIVERGED)
    finally:
        experiment.close()
    return 0


def _replay(arguments: "Arguments") -> int:
    """Compute a skipped step again; the exit status says whether it is still not finite."""
    from models.watch.replay import replay

    return EXIT_DIVERGED if replay(arguments.replay, say) else 0


def _prepare(arguments: "Arguments", conf: "ExperimentConfig") -> int:
    """Find the cameras of photographs; returns the exit status."""
    from models.preparation import run

    run(arguments, conf.dataset, say)
    return 0


def _inspect(conf: "ExperimentConfig") -> int:
    """Look at the scene, without Jittor; returns the exit status."""
    from models.inspection import inspect

    for text in inspect(conf):
        say(text)
    return 0


def _plan(conf: "ExperimentConfig") -> int:
    """Print the table of `--mode plan`; returns the exit status."""
    from data.scenes.load import load_scene
    from models.experiment import background

    scene = load_scene(conf.dataset, background(conf))  # before Jittor, which the next import loads
    from models.plan import table

    for text in table(conf, scene):
        say(text)
    return 0


def _open(arguments: "Arguments", conf: "ExperimentConfig") -> "Experiment":
    """The experiment with its scene and checkpoint; raises UserError for whatever does not fit the mode."""
    from data.scenes.scene import require_view
    from models.experiment import open_results, open_training, require_references

    if arguments.mode.name == "train":
        return open_training(conf, arguments.is_continue, arguments.checkpoint, arguments.overwrite, complain)
    experiment = open_results(conf, arguments.checkpoint, complain)
    views = (arguments.image,) if arguments.mode.name == "validate_image" else arguments.mode.views
    for view in views:
        require_view(experiment.scene, view)
    if arguments.mode.name == "evaluate":
        require_references(experiment)
    return experiment


def _dispatch(arguments: "Arguments", experiment: "Experiment", log: "RunLogger") -> None:
    """One call per mode. The imports load Jittor."""
    from models import results
    from models.runner import Runner

    runner, mode = Runner(experiment, log), arguments.mode
    if mode.name == "train":
        runner.train()
    elif mode.name == "validate_mesh":
        results.validate_mesh(runner.snapshot(), arguments.resolution, arguments.threshold)
    elif mode.name == "validate_image":
        level = arguments.resolution_level or experiment.conf.train.validate_resolution_level
        results.validate_image(runner.snapshot(), arguments.image, level)
    elif mode.name == "interpolate":
        results.interpolate(runner.snapshot(), *mode.views)
    else:
        results.evaluate(runner.snapshot(), arguments.resolution, arguments.threshold)


def _complain(sentence: str, status: int) -> int:
    """Say what is wrong on stderr; returns the exit status."""
    complain(f"error: {sentence}")
    return status


def _start() -> int:
    """`main` for the process of its own: whatever becomes of its streams, the exit status is that of the work."""
    secure()
    silence_libraries()
    try:
        return main()
    except SystemExit as leave:  # argparse, after the help page
        return leave.code if isinstance(leave.code, int) else 0
    except Exception:  # noqa: BLE001 (a fault of the program: all of it is shown)
        report_crash()
        return EXIT_CRASH


def _leave(status: int) -> NoReturn:
    """End the process without the farewells of Jittor, OpenMP and OpenCV.

    By now every file is closed, and what was printed is out. One stopped run in some forty slept in them for ever.
    """
    os._exit(status)


if __name__ == "__main__":
    _leave(_start())

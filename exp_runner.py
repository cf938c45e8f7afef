"""The command line: `python exp_runner.py --help`.

Arguments and conf are checked before Jittor is imported.
"""

import os
import sys

if __name__ == "__main__":  # before other imports: a json.py in the current folder must not be imported
    _search_path = sys.path[:]
    sys.path[:] = [os.path.dirname(os.path.realpath(__file__))]
    import data.io.search_path
    import models  # noqa: F401 (imported while the search path has its folder)

    data.io.search_path.guard_process(_search_path)

from collections.abc import Sequence
from typing import NoReturn

from data.errors import UserError, is_allocation_failure
from data.io.clock import line, phase, recorded
from data.io.streams import (
    complain,
    forget_library_variables,
    keep_interruptions,
    report_crash,
    say,
    secure,
    silence_libraries,
    telling,
)
from models.commands.command import EXIT_DONE, EXIT_GPU_FAILED, failed
from models.machine import ranks
from models.machine.cuda.choice import GpuFailedError, last_words
from models.machine.toolchain import check_limits

EXIT_CRASH = 1  # as Python ends after a traceback
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
START = "start"  # the phase that contains all others: checks, imports, the scene
MEMORY_SENTENCE = (
    "memory ran out: end other programs, or lower --resolution or train.mesh_resolution for meshes, train.render_chunk "
    "for images, train.batch_size and train.ray_chunk for training; --mode plan shows what fits"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: that of the process); returns the exit status."""
    arguments = None
    try:
        check_limits()
        from models.commands.arguments import parse_arguments
        from models.commands.model_modes import read_conf

        _require_current_folder()
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
        if not ranks.takes_part(arguments.command.is_shared):
            return EXIT_DONE
        command = arguments.command
        needs_conf = bool(command.needs_conf or arguments.conf or arguments.case or arguments.overrides)
        with telling(say), recorded() as times, phase(START):
            status = command.run(arguments, read_conf(arguments) if needs_conf else None)
        if status == EXIT_DONE:
            say(*([line(times)] if len(times) > 1 else []), *command.next_steps(arguments))
        return status
    except UserError as error:
        return failed(str(error), EXIT_USER_ERROR)
    except KeyboardInterrupt:
        words = sys.argv[1:] if argv is None else argv
        continues = arguments is not None and arguments.command.continues
        advice = "repeat the command" + " to continue" * continues
        complain(f"stopped: {advice}" + " without --overwrite" * (continues and "--overwrite" in words))
        return EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("data", "models"):
            raise
        return failed(
            f"the Python package {error.name} is missing; run `pip install -r requirements.txt`", EXIT_USER_ERROR
        )
    except GpuFailedError as error:
        return failed(str(error), EXIT_GPU_FAILED)
    except (MemoryError, RuntimeError, OSError, ImportError) as error:  # loading a library may run out of memory, too
        if words := last_words(error):
            return failed(str(GpuFailedError(words)), EXIT_GPU_FAILED)
        if not is_allocation_failure(error):
            raise
        return failed(MEMORY_SENTENCE, EXIT_USER_ERROR)


def _require_current_folder() -> None:
    """Raises UserError if the current folder was deleted: relative paths cannot be resolved then."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError("the current folder was deleted or cannot be entered: change to another one") from error


def _start() -> int:
    """`main` with the set-up of a process; failures of the standard streams do not change the exit status."""
    secure()
    silence_libraries()
    forget_library_variables()
    keep_interruptions()
    ranks.silence_other_ranks()
    try:
        status = main()
    except SystemExit as leave:  # argparse, after the help page
        status = leave.code if isinstance(leave.code, int) else 0
    except Exception:  # noqa: BLE001 (a bug of the program: the traceback is shown)
        report_crash()
        status = EXIT_CRASH
    return ranks.exit_status_of_rank(status)


def _leave(status: int) -> NoReturn:
    """End the process without the atexit handlers of Jittor, OpenMP and OpenCV.

    In about one of forty stopped runs they deadlock. All files are closed and all output is flushed by now.
    """
    os._exit(status)


if __name__ == "__main__":
    _leave(_start())

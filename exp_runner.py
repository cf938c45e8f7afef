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
    import models.machine.ranks.shield

    models.machine.ranks.shield.enter_where_ranks()  # before any library starts threads

from collections.abc import Sequence
from typing import NoReturn

from data.errors import UserError, is_allocation_failure
from data.io.interruption import keep_interruptions
from data.io.quiet import forget_library_variables, silence_libraries
from data.io.streams import report_crash, secure
from models.commands.command import EXIT_CARD_FAILED, EXIT_DONE, failed
from models.machine.cuda.failure import CardFailedError, last_words
from models.machine.ranks import started
from models.machine.ranks.ranks import RankFailedError
from models.machine.toolchain import check_limits

EXIT_CRASH = 1  # as Python ends after a traceback
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
MEMORY_SENTENCE = (
    "memory ran out: end other programs, lower --resolution or train.mesh_resolution for meshes, train.render_chunk "
    "for pictures, train.batch_size and train.ray_chunk for training; --mode plan tells what fits"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (default: the process's own); returns the exit status."""
    try:
        check_limits()
        from models.commands.arguments import asked, parse_arguments
        from models.commands.conf import conf_for

        _require_current_folder()
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
        if not started.takes_part(arguments.command.is_shared, asked(arguments)):
            return EXIT_DONE
        return arguments.command.run(arguments, conf_for(arguments))
    except RankFailedError as error:
        return failed(str(error), error.status)
    except UserError as error:
        return failed(str(error), EXIT_USER_ERROR)
    except KeyboardInterrupt:
        return failed("interrupted", EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("data", "models"):
            raise
        return failed(
            f"the Python package {error.name} is missing; run `pip install -r requirements.txt`", EXIT_USER_ERROR
        )
    except CardFailedError as error:
        return failed(str(error), EXIT_CARD_FAILED)
    except (MemoryError, RuntimeError, OSError, ImportError) as error:  # a library may not fit either
        if words := last_words(error):
            return failed(str(CardFailedError(words)), EXIT_CARD_FAILED)
        if not is_allocation_failure(error):
            raise
        return failed(MEMORY_SENTENCE, EXIT_USER_ERROR)


def _require_current_folder() -> None:
    """Raises UserError where the folder the program was started in is gone: relative paths lead nowhere then."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError("the current folder was deleted or cannot be entered: cd to one that is there") from error


def _start() -> int:
    """`main` for the process of its own: whatever becomes of its streams, the exit status is that of the work."""
    secure()
    silence_libraries()
    forget_library_variables()
    keep_interruptions()
    started.quietly()
    try:
        status = main()
    except SystemExit as leave:  # argparse, after the help page
        status = leave.code if isinstance(leave.code, int) else 0
    except Exception:  # noqa: BLE001 (a fault of the program: all of it is shown)
        report_crash()
        status = EXIT_CRASH
    return started.ended(status)


def _leave(status: int) -> NoReturn:
    """End the process without the farewells of Jittor, OpenMP and OpenCV.

    By now every file is closed, and what was printed is out. One stopped run in some forty slept in them for ever.
    """
    os._exit(status)


if __name__ == "__main__":
    _leave(_start())

"""`--mode doctor`. Nothing is trained, and nothing is written except Jittor's compilation cache."""

from __future__ import annotations

from data.io.streams import say
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.machine.ranks.ranks import joined

EXIT_WRONG = 1


def run(arguments: Arguments, conf: ExperimentConfig | None) -> int:
    """Print a line for each check; returns the exit status."""
    from models.commands.machine_checks.examine import examine

    del conf
    if checked := joined().check():
        say(checked)
        joined().close()
        if not joined().is_writer:
            return EXIT_DONE
    is_ok = examine(arguments.device, arguments.gpu, lambda line: say(line.text()))
    say("all checks passed" if is_ok else "each line marked WRONG ends with the remedy")
    return EXIT_DONE if is_ok else EXIT_WRONG


COMMAND = Command(
    name="doctor",
    line="check the machine: driver, GPU, toolkit, compilers, and every operation against its reference",
    run=run,
    is_shared=True,
    needs_conf=False,
)

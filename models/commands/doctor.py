"""`--mode doctor`. Nothing is trained or written, but for what Jittor compiles."""

from __future__ import annotations

from data.io.streams import say
from models.commands.command import EXIT_DONE, Arguments, Command, ExperimentConfig
from models.machine.ranks.ranks import joined

EXIT_WRONG = 1


def run(arguments: Arguments, conf: ExperimentConfig | None) -> int:
    """Print a line for everything that was looked at; returns the exit status."""
    from models.doctor.examine import examine

    del conf
    ranks = joined()
    if ranks.size > 1:
        from models.doctor.ranks import together  # which needs a package; the line about packages needs none

        for line in together(ranks, arguments.gpu):
            say(line.text())
        ranks.close()
        if not ranks.is_first:
            return EXIT_DONE
    is_ok = examine(arguments.device, arguments.gpu, lambda line: say(line.text()))
    say("all is well" if is_ok else "the lines that say WRONG end with what is to be done")
    return EXIT_DONE if is_ok else EXIT_WRONG


COMMAND = Command(
    name="doctor",
    line="is this machine fit? driver, card, toolkit, compilers, and every operation against its reference",
    run=run,
    is_shared=True,
    needs_conf=False,
)

"""The training step beside that of another checkout: `python -m benchmarks.bm_versions --help`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.report import provenance
from benchmarks.versions_worker import READY, TOOK
from data.errors import UserError
from data.io.streams import complain, say

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "benchmarks" / "versions_worker.py"
OTHER_CACHE = "other"  # Jittor's cache of the other checkout, whose compiler flags may differ
EXIT_USER_ERROR = 2
DESCRIPTION = """
Trains the same scene with this checkout and with another one, in turns of --steps steps, and prints the ratio of their
step times (median of the rounds): this one by the other. Everything after -- is passed to both command lines.
"""


class Version:
    """A training of one checkout, stopped between its rounds."""

    def __init__(self, name: str, folder: Path, arguments: Sequence[str], environment: dict[str, str]) -> None:
        """Start it, and wait until its first steps are taken; raises UserError if it ends before."""
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), *arguments],
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._until(READY)

    def round(self) -> tuple[float, float]:
        """Wall-clock and CPU seconds of the next steps; raises UserError if the training ends."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        wall, processor = self._until(TOOK)
        return float(wall), float(processor)

    def close(self) -> None:
        """End the training."""
        self._process.kill()
        self._process.communicate()

    def _until(self, word: str) -> list[str]:
        """The words after `word` on its line of standard error."""
        last = ""
        for line in self._process.stderr:
            words = line.split()
            if words[:1] == [word]:
                return words[1:]
            last = line.strip() or last
        raise UserError(f"the training of {self._name} ended: {last}")


def compare(other: Path, given: argparse.Namespace) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Wall-clock and CPU seconds of a step, of this checkout and of the other one, by round."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {"this checkout": ROOT, str(other): other}
        versions: list[Version] = []
        try:
            for number, (name, folder) in enumerate(folders.items()):
                own = ["--set", f"general.base_exp_dir={scratch}/{number}"]
                arguments = [str(given.warm_up), str(given.steps), *given.arguments, *own]
                environment = {"cache_name": OTHER_CACHE} if number else {}
                versions.append(Version(name, folder, arguments, environment))
            found = []
            for number in range(given.rounds):
                order = versions if number % 2 else versions[::-1]  # neither is always the second
                took = {version: version.round() for version in order}
                found.append(tuple(tuple(value / given.steps for value in took[version]) for version in versions))
            return found
        finally:
            for version in versions:
                version.close()


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit status."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bm_versions",
        usage="%(prog)s [--rounds N] [--steps N] [--warm-up N] CHECKOUT -- FLAGS of --mode train",
        description=DESCRIPTION,
        allow_abbrev=False,
    )
    parser.add_argument("other", type=Path, metavar="CHECKOUT", help="the other checkout of the project")
    parser.add_argument("--rounds", type=int, default=13, metavar="N", help="default 13")
    parser.add_argument("--steps", type=int, default=25, metavar="N", help="of a round (default 25)")
    parser.add_argument("--warm-up", type=int, default=150, metavar="N", help="steps before (default 150)")
    given = parser.parse_args(arguments[:end], argparse.Namespace(arguments=arguments[end + 1 :]))
    try:
        if not (given.other / "exp_runner.py").is_file():
            raise UserError(f"{given.other}: is no checkout of the project: it has no exp_runner.py")
        if min(given.rounds, given.steps, given.warm_up) < 1:
            raise UserError("--rounds, --steps and --warm-up must be at least 1")
        rounds = compare(given.other.resolve(), given)
    except UserError as error:
        complain(f"error: {error}")
        return EXIT_USER_ERROR
    say(*report(rounds).splitlines(), str(provenance()))
    return 0


def report(rounds: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> str:
    """Two lines: medians of the CPU time of a step, and of the ratios, with all ratios."""
    own, other = (1000 * median(each[side][1] for each in rounds) for side in (0, 1))
    wall, processor = ([ours[kind] / theirs[kind] for ours, theirs in rounds] for kind in (0, 1))
    ratios = " ".join(f"{ratio:.3f}" for ratio in processor)
    return (
        f"CPU time of a step: {own:.2f} ms, the other {other:.2f} ms\n"
        f"ratio: {median(processor):.3f} of CPU time, {median(wall):.3f} of wall-clock time; CPU by round: {ratios}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

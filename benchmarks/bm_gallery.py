"""Quality of the recipes on many scenes: `python -m benchmarks.bm_gallery --help`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gallery.page import write_page
from benchmarks.gallery.render import write_scene
from benchmarks.gallery.runs import MASKS_OPTIONAL, QUICK_SETTINGS, RECIPES, Execute, Interrupted, Run, do, in_process
from benchmarks.gallery.scenes import CATALOGUE, QUICK, draw
from benchmarks.gallery.sources import FILES, Case, captured, generated
from data.errors import UserError
from data.io.streams import complain, say

EXIT_USER_ERROR, EXIT_INTERRUPTED = 2, 130
STEPS, SEEDS = (1000, 5000, 15000), (0, 1, 2)
QUICK_STEPS, QUICK_RESOLUTION = 600, 96
RESOLUTION = 256  # grid points of the scored mesh per axis: a cell is 0.008 of the radius
DRAWN = 6  # scenes of --draw
NICENESS = 10
DESCRIPTION = """
Trains recipes on generated and captured scenes, with and without masks, evaluates them and draws one page of PSNR,
witness, Chamfer distance, skipped steps and collapses. One file per run is kept in --out: started again, the command
goes on with the runs that are missing. Give each commit an --out of its own.
"""


def main(arguments: Sequence[str], execute: Execute | None = None) -> int:
    """Run the command line; returns the exit status: 1 if a run collapsed."""
    given = _parser().parse_args(arguments)
    try:
        if given.page:
            say(f"page: {write_page(given.out)}")
            return 0
        cases = chosen_cases(given)
        if given.render:
            return _render(cases, given.out)
        runs = chosen_runs(given, cases)
        os.nice(given.nice)
        return _all(runs, given, execute or in_process(given.threads))
    except UserError as error:
        complain(f"error: {error}")
        return EXIT_USER_ERROR
    except (Interrupted, KeyboardInterrupt):
        complain("interrupted; the same command goes on")
        return EXIT_INTERRUPTED


def chosen_cases(given: argparse.Namespace) -> list[Case]:
    """The scenes selected by the command line; raises UserError for an unknown name."""
    if given.quick:
        cases = [case for case in generated(QUICK, given.out) if case.has_masks == case.original.has_masks]
    elif given.draw is not None:
        cases = generated(draw(given.draw, given.count), given.out)
    else:
        cases = generated(CATALOGUE, given.out) + (captured(given.data, given.out) if given.data else [])
    if not given.scenes:
        return cases
    names = {name for case in cases for name in (case.name, case.title)}
    if unknown := sorted(set(given.scenes) - names):
        raise UserError(f"--scenes {unknown[0]}: is none of {', '.join(sorted(names))}")
    return [case for case in cases if given.scenes & {case.name, case.title}]


def chosen_runs(given: argparse.Namespace, cases: Sequence[Case]) -> list[Run]:
    """All runs, short ones first, so that the page soon shows results of all scenes."""
    confs, steps, seeds = (given.confs or RECIPES), (given.steps or STEPS), (given.seeds or SEEDS)
    settings: tuple[str, ...] = tuple(given.set)
    quick = QUICK_SETTINGS if given.quick else ()
    if given.quick:
        confs, steps, seeds = given.confs or ("fast",), given.steps or (QUICK_STEPS,), given.seeds or (0,)
    return [
        Run(case, conf, length, seed, (*quick, *settings) if conf in MASKS_OPTIONAL else settings)
        for length in steps
        for seed in seeds
        for case in cases
        for conf in confs
    ]


def _all(runs: Sequence[Run], given: argparse.Namespace, execute: Execute) -> int:
    """Execute the runs, --jobs at a time, and write the page after each."""
    resolution = given.resolution or (QUICK_RESOLUTION if given.quick else RESOLUTION)

    def results() -> Iterator[dict]:
        if given.jobs == 1:
            yield from (do(run, given.out, resolution, execute, given.keep) for run in runs)
            return
        with ThreadPoolExecutor(given.jobs) as pool:
            yield from pool.map(lambda run: do(run, given.out, resolution, execute, given.keep), runs)

    collapsed = 0
    for number, (run, result) in enumerate(zip(runs, results(), strict=True), 1):
        collapsed += bool(result["collapse"])
        psnr = "-" if result["psnr"] is None else f"{result['psnr']:.2f} dB"
        say(f"{number}/{len(runs)} {run.name}: {psnr}, {result['collapse'] or 'no collapse'}")
        write_page(given.out)
    say(f"{collapsed} of {len(runs)} runs collapsed; page: {write_page(given.out)}")
    return int(collapsed > 0)


def _render(cases: Sequence[Case], out: Path) -> int:
    """Write the generated scenes without training."""
    for spec in dict.fromkeys(case.original for case in cases if not isinstance(case.original, Path)):
        write_scene(spec, out / FILES / spec.name)
        say(f"{out / FILES / spec.name}: {spec.photographs} photographs of {spec.size[0]}x{spec.size[1]}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bm_gallery", description=DESCRIPTION, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="captured scenes: bunny, dtu_scan24, dtu_scan65, lego, fox, herzjesu8",
    )
    add(
        "--out", type=Path, default=Path("exp/gallery"), help="where scenes, results and page lie (default exp/gallery)"
    )
    add(
        "--scenes", type=_names, default=frozenset(), metavar="A,...", help="some of them; NAME_no_masks is one without"
    )
    add("--confs", type=_listed(str, RECIPES), metavar="A,...", help=f"recipes (default {','.join(RECIPES)})")
    add("--steps", type=_listed(int), metavar="N,...", help="lengths of the trainings (default 1000,5000,15000)")
    add("--seeds", type=_listed(int), metavar="N,...", help="of the trainings (default 0,1,2)")
    add(
        "--draw",
        type=int,
        metavar="SEED",
        help="scenes drawn at random in place of the catalogue's; a seed, its scenes",
    )
    add("--count", type=_positive, default=DRAWN, metavar="N", help=f"how many --draw draws (default {DRAWN})")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="another value in all confs; repeatable")
    add("--resolution", type=_positive, metavar="N", help=f"of the scored meshes (default {RESOLUTION})")
    add("--jobs", type=_positive, default=1, metavar="N", help="runs at a time (default 1)")
    add("--threads", type=_positive, default=1, metavar="N", help="of each run, OMP_NUM_THREADS (default 1)")
    add("--nice", type=int, default=NICENESS, metavar="N", help=f"added to the niceness (default {NICENESS})")
    add("--keep", action="store_true", help="keep the experiment folders")
    add("--quick", action="store_true", help=f"four small scenes, confs/fast.conf, {QUICK_STEPS} steps")
    add("--render", action="store_true", help="write the generated scenes without training")
    add("--page", action="store_true", help="write the page of the existing results without training")
    return parser


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError(text)
    return value


def _listed(kind: type, among: Sequence[str] | None = None) -> object:
    """An argparse type: a comma-separated list."""

    def read(text: str) -> tuple:
        values = tuple(kind(part) for part in text.split(","))
        if among is not None and not set(values) <= set(among):
            raise ValueError(text)
        return values

    read.__name__ = f"list of {', '.join(among) if among else kind.__name__}"
    return read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

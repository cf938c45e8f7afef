"""Check CUDA without a GPU: `python -m benchmarks.cuda_check --help`; `make cuda-check`."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import cuda_check_flags as flags
from benchmarks.cuda_check_flags import told
from benchmarks.cuda_check_toolkit import completed, found_compiler, simulated_gpu
from benchmarks.pretend.build import Pretended
from benchmarks.shapes import ROOT
from data.errors import UserError, one_line
from models.machine.cuda.facts import Toolkit
from models.machine.toolchain import HOME_HINT, check_environment, jittor_home

WAITS = 1  # waits of the host for the GPU per step: that of the guard, for the verdict on the previous step
WORKER = "benchmarks.cuda_check_worker"
SECONDS = 3600  # per conf, with everything compiled; a thousand CPU seconds on a loaded machine
HOST_SHARE, MOST_POOL, MOST_OPERATIONS = 0.25, 900, 30  # what the native forms are to reach at the released size
MOST_COMPILED = 400  # CPU seconds from an empty cache to the first step
SKIPPED = "skipped"
EXIT_USER_ERROR, EXIT_INTERRUPTED = 2, 130  # as argparse and shells have it
PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphans become children of this process
ORPHAN_SECONDS, POLL_SECONDS = 60, 0.5
NOTHING: Mapping[str, str] = {}
# What a conf's step may be on other scenes than the bundled one: a name, the conf, and what the worker is given.
ON_OTHER_SCENES = {
    "fast": ("fast without masks, with points", ("--set", "train.mask_weight=0", "--points")),
    "fast_nerf": ("fast_nerf without masks", ("--set", "train.mask_weight=0")),
}
SHOWN = ("wmask", "womask", "nerf_synthetic", "fast", "fast_nerf", "gaussians", "surfels")  # one of each kind


def main(arguments: Sequence[str]) -> int:
    """Check and print; returns the exit status."""
    try:
        return _check(_parser().parse_args(arguments))
    except KeyboardInterrupt:
        print("interrupted: what is compiled by now is kept", file=sys.stderr)
        return EXIT_INTERRUPTED
    except UserError as error:
        sentence = str(error)
    except OSError as error:  # a full disk is met anywhere
        sentence = f"{error.filename or tempfile.gettempdir()}: {error.strerror or error}: make room, or {HOME_HINT}"
    print(one_line(f"error: {sentence}"), file=sys.stderr)
    return EXIT_USER_ERROR


def _parser() -> argparse.ArgumentParser:
    """The parser of the flags, which raises UserError for invalid ones."""
    made = flags.Parser(prog="benchmarks/cuda_check.py", description=flags.DESCRIPTION, allow_abbrev=False)
    made.add_argument(
        "--conf", action="append", type=flags.conf, metavar="NAME", help="of confs/, repeatable (default: all)"
    )
    made.add_argument("--steps", type=flags.count, default=flags.STEPS, help=f"steps of each (default {flags.STEPS})")
    made.add_argument("--one", action="store_true", help="only for capability 9.0, as on a user's GPU")
    made.add_argument(
        "--capability",
        action="append",
        type=flags.capability,
        metavar="N.N",
        help="capability to compile for, repeatable; the highest is that of the simulated GPU (default: 8.0 and 9.0)",
    )
    made.add_argument("--first", action="store_true", help="only the first start and step, with an empty compile cache")
    made.add_argument("--no-host", dest="host", action="store_false", help="without the released size")
    made.add_argument("--no-plain", dest="plain", action="store_false", help="its own forms only")
    return made


def _check(given: argparse.Namespace) -> int:
    """Check with parsed flags; raises UserError and OSError."""
    compiler = found_compiler()
    if isinstance(compiler, Toolkit):
        flags.codes(given, compiler.codes)  # a mistake is reported before anything is fetched
    check_environment()  # which makes the cache where Jittor never started
    cache = Path(jittor_home()) / ".cache" / "jittor"
    toolkit = completed(compiler, cache) if isinstance(compiler, Toolkit) else compiler
    if isinstance(toolkit, str):
        print(f"{SKIPPED}: {toolkit}")
        return 0
    codes = flags.codes(given, toolkit.codes)
    pretended = simulated_gpu(toolkit, codes, cache)
    print(f"nvcc {toolkit.release[0]}.{toolkit.release[1]} ({toolkit.nvcc}), code for {told(codes)}", flush=True)
    _adopt_orphans()
    if given.first:
        return 0 if _check_first(given.conf or ["wmask"], pretended) else 1
    names = given.conf or flags.confs()
    failed = [case[0] for case in cases(names) if not _check_conf(*case, pretended, given.steps, codes)]
    if not given.conf and not _check_examples(pretended, codes):
        failed.append("the doctor's examples")
    if given.host and not _check_host(pretended, given.steps, given.plain):
        failed.append("the released size")
    print(f"not well: {', '.join(failed)}" if failed else "all is well")
    return 1 if failed else 0


def cases(names: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The cases to check for these confs: a name, and the arguments of the worker."""
    for name in names:
        conf = ("--conf", f"confs/{name}.conf", *(("--results",) if name in SHOWN else ()))
        yield name, conf
        if name in ON_OTHER_SCENES:
            other, more = ON_OTHER_SCENES[name]
            yield other, (*conf, *more)


def _check_conf(name: str, case: Sequence[str], pretended: Pretended, steps: int, codes: Sequence[int]) -> bool:
    """Run steps of a conf in a separate process, and print a line about them."""
    found, spent = _weighed(pretended, [*case, "--steps", str(steps)])
    if "error" in found:
        print(f"WRONG  {name}: {found['error']}", flush=True)
        return False
    counts = [found[when + kind] for when in ("", "late_") for kind in ("vars", "ops")]
    waits = [found["waits"], found["late_waits"]]
    is_well = all(early == late for early, late in counts) and not found["on_host"] and found["codes"] == list(codes)
    is_well = is_well and all(times["median"] == WAITS for times in waits)
    hosted = f", on the host: {', '.join(found['on_host'])}" if found["on_host"] else ""
    meant = f", {found['meant_for_host']} meant for the host" if found["meant_for_host"] else ""
    shown = f", {found['of_results']} of them only pictures and meshes use" if "of_results" in found else ""
    print(
        f"{'ok   ' if is_well else 'WRONG'}  {name}: {steps} steps, variables {_pair(counts[0])}, operations "
        f"{_pair(counts[1])}, half-way {_pair(counts[2])} and {_pair(counts[3])}; {found['host_ms']:.1f} ms of the "
        f"host a step, {found['kernels']:.0f} kernels, memory asked of the GPU {found['allocations']} times in them; "
        f"the host waits {_waited(waits)}; {found['on_gpu']} operations with code for "
        f"{told(found['codes'])}{meant}{hosted}{shown}; {found['compiled']} "
        f"compiled for the first step, {spent:.0f} processor seconds in all",
        flush=True,
    )
    return is_well


def _check_examples(pretended: Pretended, codes: Sequence[int]) -> bool:
    """Compute the doctor's example of each operation, forward and backward, and print a line about them."""
    found, spent = _weighed(pretended, ["--examples"])
    if "error" in found:
        print(f"WRONG  the doctor's examples: {found['error']}", flush=True)
        return False
    is_well = not found["on_host"] and found["codes"] == list(codes)
    hosted = f", on the host: {', '.join(found['on_host'])}" if found["on_host"] else ""
    print(
        f"{'ok   ' if is_well else 'WRONG'}  the doctor's examples of {found['examples']} operations, forward and "
        f"backward: {found['on_gpu']} operations of Jittor with code for {told(found['codes'])}{hosted}; "
        f"{spent:.0f} processor seconds in all",
        flush=True,
    )
    return is_well


def _waited(waits: Sequence[Mapping[str, float]]) -> str:
    """How often a step waits for the GPU at the beginning and half-way, and how much it reads back."""
    times = " and ".join(dict.fromkeys(f"{when['median']:g}" for when in waits))
    read = " and ".join(dict.fromkeys(f"{when['bytes']:.0f}" for when in waits))
    most, most_read = (max(int(when[kind]) for when in waits) for kind in ("most", "most_bytes"))
    return f"{times} times a step (at most {most}) and reads {read} bytes (at most {most_read})"


def _weighed(pretended: Pretended, arguments: Sequence[str], more: Mapping[str, str] = NOTHING) -> tuple[dict, float]:
    """The answer of a process, and the CPU seconds of the process and all its children."""
    before = _children_seconds()
    found = _worker(pretended, arguments, more)
    _bury_orphans()
    return found, _children_seconds() - before


def _check_first(names: Sequence[str], pretended: Pretended) -> bool:
    """Measure the first start of a machine up to the first step of a conf; returns whether all targets are reached."""
    is_well = True
    for name in names:
        with tempfile.TemporaryDirectory() as home:
            found, spent = _weighed(pretended, ["--conf", f"confs/{name}.conf", "--first"], {"HOME": home})
        if "error" in found:
            print(f"WRONG  {name}: {found['error']}", flush=True)
            is_well = False
            continue
        print(
            f"       {name}, from nothing to the end of the first step: {spent:.0f} processor seconds, of these "
            f"{found['compile_seconds']:.0f} in the step, {found['compiled']} operations",
            flush=True,
        )
        is_well = _target(f"{MOST_COMPILED} processor seconds", spent <= MOST_COMPILED) and is_well
    return is_well


def _adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that their CPU time is counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _bury_orphans() -> None:
    """Wait for orphaned processes of Jittor's compilers, so that their CPU time is counted."""
    end = time.monotonic() + ORPHAN_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(POLL_SECONDS)


def _children_seconds() -> float:
    """CPU seconds of all ended child processes and their descendants."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _check_host(pretended: Pretended, steps: int, with_plain: bool) -> bool:
    """Measure the step at the released size; returns whether it reaches its targets."""
    found = {}
    for form in ("native", "plain") if with_plain else ("native",):
        one = found[form] = _worker(pretended, ["--released", "--form", form, "--steps", str(steps)])
        if "error" in one:
            print(f"WRONG  512x64+64, {form}: {one['error']}", flush=True)
            return False
        print(
            f"       512x64+64, {form}: {one['host_ms']:.2f} ms of the host a step, {one['operations']} operations, "
            f"{one['kernels']:.0f} kernels, Jittor's pool {one['pool_mib']:.0f} MiB, memory asked of the GPU "
            f"{one['allocations']} times in {steps} steps, the host waits {_waited([one['waits']])}",
            flush=True,
        )
    native = found["native"]
    reached = {
        f"operations <= {MOST_OPERATIONS}": native["operations"] <= MOST_OPERATIONS,
        f"pool <= {MOST_POOL} MiB": native["pool_mib"] <= MOST_POOL,
        "no memory asked of the GPU in a step": native["allocations"] == 0,
    }
    if with_plain:
        share = native["host_ms"] / found["plain"]["host_ms"]
        reached[f"host time <= {HOST_SHARE} of plain ({share:.2f})"] = share <= HOST_SHARE
    for words, is_reached in reached.items():
        _target(words, is_reached)
    return all(reached.values())


def _target(words: str, is_reached: bool) -> bool:
    """Print a line about a target; returns whether it is reached."""
    print(f"{'      ' if is_reached else 'WRONG '} target {words}: {'reached' if is_reached else 'missed'}", flush=True)
    return is_reached


def _pair(counts: Sequence[int]) -> str:
    """`184` if both values are equal, else `184 -> 190`."""
    return str(counts[0]) if counts[0] == counts[1] else f"{counts[0]} -> {counts[1]}"


def _worker(pretended: Pretended, arguments: Sequence[str], more: Mapping[str, str] = NOTHING) -> dict:
    """The answer of a process with the simulated GPU; has the key `error` if it fails."""
    environment = os.environ | pretended.environment | {"CUDA_VISIBLE_DEVICES": "0"} | more
    if "HOME" in more:
        environment.pop("JITTOR_HOME", None)
    command = [sys.executable, "-m", WORKER, *arguments]
    try:
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it takes longer than {SECONDS} s"}
    if done.returncode:
        words = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        telling = [line for line in words if "rror" in line] or words or ["it said nothing"]
        return {"error": f"status {done.returncode}: {telling[-1].strip()}"}
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

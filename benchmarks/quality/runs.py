"""The trainings of a measurement and their stored results; each has a folder and is executed once."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.quality.job import CONF, Measurement, weights_file
from benchmarks.report import provenance
from benchmarks.workers import Worker
from data.errors import UserError
from data.io.files import write_result
from models.config.strict import ConfigError
from models.methods.conf import ExperimentConfig, load_config, to_hocon, validate

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it names a folder
TRAINED, MEASURED = "trained.json", "measured.json"


@dataclass(frozen=True)
class Spec:
    """One --run: a name, a conf file, and overrides."""

    name: str
    path: Path
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A training: name, conf, overrides, length and seed."""

    spec: Spec
    length: float  # times the conf's own train.end_iter
    conf: ExperimentConfig  # with all settings, the length and the seed

    @property
    def folder_name(self) -> str:
        """Of the folder below --out that it has for itself."""
        return f"{self.spec.name}_x{self.length:g}_seed{self.conf.train.seed}"


def parse_spec(words: Sequence[str]) -> Spec:
    """Parse NAME=CONF [KEY=VALUE ...]; raises UserError if it is invalid."""
    name, equals, path = words[0].partition("=")
    if not equals or not path or not NAME.fullmatch(name):
        raise UserError(
            f"--run {words[0]}: write it as NAME=CONF, such as fast=confs/fast.conf; a name has letters, digits, "
            "dots, dashes and underscores"
        )
    return Spec(name, Path(path), tuple(words[1:]))


def make_runs(
    specs: Sequence[Spec], case: str, common: Sequence[str], lengths: Sequence[float], seeds: Sequence[int]
) -> list[Run]:
    """All trainings in the order of execution, with compared ones next to each other.

    The overrides of a run take precedence over `common`; without `seeds` the seed of each conf is used. Raises
    UserError for a conf that cannot be used, and for two runs of one name.
    """
    names = [spec.name for spec in specs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"--run {twice[0]}: there are two of this name; give each its own")
    loaded = [(spec, load_config(spec.path, case, (*common, *spec.settings))) for spec in specs]
    return [
        Run(spec, length, _as_long(spec, conf, length, conf.train.seed if seed is None else seed))
        for length in lengths
        for seed in seeds or (None,)
        for spec, conf in loaded
    ]


def _as_long(spec: Spec, conf: ExperimentConfig, length: float, seed: int) -> ExperimentConfig:
    """The conf with another length and seed; raises UserError if they are invalid."""
    end_iter = max(1, round(length * conf.train.end_iter))
    changed = replace(conf, train=replace(conf.train, end_iter=end_iter, seed=seed))
    try:
        validate(changed)
    except ConfigError as error:
        raise UserError(f"{spec.path} at {length:g} times its length with seed {seed}: {error}") from error
    return changed


def marks(end_iter: int, shares: Sequence[float]) -> list[int]:
    """The steps at these fractions of a training, and its last step."""
    return sorted({max(1, round(share * end_iter)) for share in (*shares, 1.0)})


def finished(run: Run, folder: Path, steps: Sequence[int]) -> dict[str, Any] | None:
    """The stored results of a finished training with weights at all of `steps`; None if it must be trained.

    Raises UserError if the folder contains a training of another conf, which is not overwritten.
    """
    kept = _read(folder / TRAINED)
    if kept is None:
        return None
    if kept["conf"] != _identity(run):
        raise UserError(
            f"{folder}: holds a training of this name with another conf; choose another name or --out, or remove it"
        )
    there = {row["step"] for row in kept["rows"]}
    if not there.issuperset(steps):
        raise UserError(
            f"{folder}: holds this training with its weights at other shares of it; choose another --out, the --at of "
            "before, or remove it"
        )
    return kept if all(weights_file(folder, step).is_file() for step in steps) else None


def train(run: Run, folder: Path, steps: Sequence[int]) -> dict[str, Any]:
    """Train, or use the stored results; raises UserError if the training does not finish."""
    kept = finished(run, folder, steps)
    if kept is not None:
        return kept
    write_result(folder / CONF, to_hocon(run.conf).encode())
    load = os.getloadavg()[0]  # of the minute before: what else went on
    with _worker(run, "train", folder) as worker:
        answer = worker.ask("train", *map(str, steps))
    about = {key: answer[key] for key in ("prepare_seconds", "threads", "rows")}
    done = {"conf": _identity(run), "load": load} | provenance() | about
    _write(folder / TRAINED, done)
    return done


def measure(
    run: Run, folder: Path, steps: Sequence[int], asked: Measurement, told: Callable[[str], None]
) -> dict[int, dict[str, Any]]:
    """The metrics at each of `steps`, stored or computed; each is stored at once."""
    if not asked.ground_truth and run.conf.dataset.reference_mesh:
        asked = replace(asked, ground_truth=str(Path(run.conf.dataset.reference_mesh).absolute()))
    kept = _read(folder / MEASURED) or {}
    found = {int(step): figures for step, figures in kept.get("figures", {}).items()}
    if kept.get("asked") != _asked_identity(asked):
        found = {}
    missing = [step for step in steps if step not in found]
    if missing:
        with _worker(run, "measure", folder, json.dumps(asdict(asked))) as worker:
            for step in missing:
                told(f"  figures of step {step}")
                answer = worker.ask("figures", str(step))
                found[step] = {name: value for name, value in answer.items() if name != "peak_bytes"}
                _write(folder / MEASURED, {"asked": _asked_identity(asked), "figures": found})
    return {step: found[step] for step in steps}


def _worker(run: Run, module: str, *arguments: Path | str) -> Worker:
    """Start a process for one run."""
    command = [sys.executable, "-m", f"benchmarks.quality.{module}", *map(str, arguments)]
    return Worker(f"{run.folder_name}, {module}", command, os.environ, Path(arguments[0]) / f"{module}.log")


def _identity(run: Run) -> str:
    """The properties by which equal trainings are recognised, without the paths of results."""
    return to_hocon(replace(run.conf, general=replace(run.conf.general, base_exp_dir="-", recording=())))


def _asked_identity(asked: Measurement) -> dict[str, Any]:
    """The requested metrics, with the modification times of the reference files."""
    ages = [Path(name).stat().st_mtime_ns if name else 0 for name in (asked.ground_truth, asked.points)]
    return asdict(asked) | {"ages": ages}


def _read(path: Path) -> dict[str, Any] | None:
    """Read a file of this benchmark; None if it does not exist. Raises UserError for invalid JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove it, and it is made again") from error


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write one line of JSON."""
    write_result(path, (json.dumps(content) + "\n").encode())

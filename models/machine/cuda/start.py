"""Prepares CUDA for a process: detection, choice of a toolkit, and the CUDA home, made once per machine."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.machine.cuda import driver, refusal, search
from models.machine.cuda.conclude import PIP_ALL, Conclusion, CudaBuild, conclude, install
from models.machine.cuda.driver import VISIBLE
from models.machine.cuda.facts import Driver, Facts
from models.machine.cuda.home import Home, HomeError, prepare


@dataclass(frozen=True)
class Ready:
    """A CUDA home, or the reason why there is none, with a remedy."""

    home: Home | None
    reason: str = ""


def visible(gpu: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which GPU `gpu`, of those in CUDA_VISIBLE_DEVICES, is the first."""
    named = environment[VISIBLE].split(",") if VISIBLE in environment else None
    if named is None:
        return {**environment, VISIBLE: str(gpu)}
    return {**environment, VISIBLE: named[gpu].strip()} if 0 < gpu < len(named) else dict(environment)


def gather(environment: Mapping[str, str]) -> Facts:
    """Detect driver and toolkits; toolkits are searched only if there is a driver with a GPU."""
    found: Driver | None = driver.ask(environment)
    toolkits = search.toolkits(environment, search.package_folders()) if found and found.gpus else ()
    return Facts(found, tuple(toolkits))


def concluded(gpu: int = 0) -> tuple[Facts, Conclusion]:
    """The facts, and the conclusion for GPU `gpu`."""
    facts = gather(os.environ)
    return facts, conclude(facts, gpu)


@lru_cache(maxsize=4)
def ready(gpu: int, place: Path, host: str) -> Ready:
    """The home for GPU `gpu` below `place`, with `host` as nvcc's C++ compiler; computed once per process."""
    facts, conclusion = concluded(gpu)
    if conclusion.plan is None or facts.driver is None:
        return Ready(None, conclusion.reason)
    plans = (conclusion.plan, *conclusion.others)
    for patience in (math.inf, refusal.PATIENCE):  # toolkits that failed are tested again only if no other works
        errors: list[HomeError] = []
        for plan in plans:
            try:
                return Ready(prepare(plan, place, host, patience))
            except HomeError as error:
                errors.append(error)
                if not error.is_of_toolkit:
                    return Ready(None, _refused(plans, errors, facts.driver))
    return Ready(None, _refused(plans, errors, facts.driver))


def _refused(plans: Sequence[CudaBuild], errors: Sequence[HomeError], driver: Driver) -> str:
    """Why no toolkit works, with a reason for each; the remedy is that of the first toolkit, or pip's packages."""
    gpu, first, tried = plans[0].gpu, errors[0], list(zip(plans, errors, strict=False))
    reasons = ", and ".join(f"{plan.toolkit.words} was found, but {error.words}" for plan, error in tried)
    remedies = [first.remedy]
    pips = {error.remedy for plan, error in tried if plan.toolkit.is_pips}
    if first.is_of_toolkit and install(driver, gpu) == PIP_ALL != first.remedy and pips <= {PIP_ALL}:
        remedies.append(PIP_ALL)
    return f"{gpu.words} is not used, {reasons}: {', or '.join(remedies)}, or use --device cpu"

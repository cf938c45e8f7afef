"""CUDA made ready for a process: asked, concluded, and its home made, once for each machine."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.machine.cuda import driver, refusal, search
from models.machine.cuda.conclude import PIP_ALL, Conclusion, Plan, conclude, install
from models.machine.cuda.driver import VISIBLE
from models.machine.cuda.facts import Driver, Facts
from models.machine.cuda.home import Home, HomeError, prepare


@dataclass(frozen=True)
class Ready:
    """A home to build against, or why there is none: a sentence with what to do."""

    home: Home | None
    reason: str = ""


def visible(gpu: int, environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment has to say for card `gpu` to be the first, of those that the user has chosen in it."""
    named = environment[VISIBLE].split(",") if VISIBLE in environment else None
    if named is None:
        return {**environment, VISIBLE: str(gpu)}
    return {**environment, VISIBLE: named[gpu].strip()} if 0 < gpu < len(named) else dict(environment)


def gather(environment: Mapping[str, str]) -> Facts:
    """What there is; toolkits are looked for only where there is a driver."""
    found: Driver | None = driver.ask(environment)
    toolkits = search.toolkits(environment, search.package_folders()) if found and found.cards else ()
    return Facts(found, tuple(toolkits))


def concluded(gpu: int = 0) -> tuple[Facts, Conclusion]:
    """The facts, and what follows for card `gpu` of those that the driver offers this process."""
    facts = gather(os.environ)
    return facts, conclude(facts, gpu)


@lru_cache(maxsize=4)
def ready(gpu: int, place: Path, host: str) -> Ready:
    """A home for card `gpu` below `place`, with `host` as nvcc's C++ compiler; asked once in a process."""
    facts, conclusion = concluded(gpu)
    if conclusion.plan is None or facts.driver is None:
        return Ready(None, conclusion.reason)
    plans = (conclusion.plan, *conclusion.others)
    for patience in (math.inf, refusal.PATIENCE):  # what was refused long ago is tried again only where nothing else is
        errors: list[HomeError] = []
        for plan in plans:
            try:
                return Ready(prepare(plan, place, host, patience))
            except HomeError as error:
                errors.append(error)
                if not error.is_of_toolkit:
                    return Ready(None, _refused(plans, errors, facts.driver))
    return Ready(None, _refused(plans, errors, facts.driver))


def _refused(plans: Sequence[Plan], errors: Sequence[HomeError], driver: Driver) -> str:
    """Why no toolkit can be built against, each with its reason; what helps the first, or pip's."""
    card, first, tried = plans[0].card, errors[0], list(zip(plans, errors, strict=False))
    told = ", and ".join(f"{plan.toolkit.words} was found, but {error.words}" for plan, error in tried)
    remedies = [first.remedy]
    pips = {error.remedy for plan, error in tried if plan.toolkit.is_pips}
    if first.is_of_toolkit and install(driver, card) == PIP_ALL != first.remedy and pips <= {PIP_ALL}:
        remedies.append(PIP_ALL)
    return f"{card.words} is not used, {told}: {', or '.join(remedies)}, or use --device cpu"

"""CUDA made ready for a process: asked, concluded, and its home made, once for each machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.machine.cuda import driver, search
from models.machine.cuda.conclude import Conclusion, conclude
from models.machine.cuda.driver import VISIBLE
from models.machine.cuda.facts import Driver, Facts
from models.machine.cuda.home import Home, HomeError, prepare


@dataclass(frozen=True)
class Ready:
    """A home to build against, or why there is none: a sentence with what to do."""

    home: Home | None
    reason: str = ""


def visible(gpu: int, environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment has to say for card `gpu` to be the first, of those that the user has chosen if any are."""
    if VISIBLE not in environment:
        return {**environment, VISIBLE: str(gpu)}
    chosen = environment[VISIBLE].split(",")
    return {**environment, VISIBLE: ",".join(chosen[gpu:])} if gpu < len(chosen) else dict(environment)


def gather(environment: Mapping[str, str]) -> Facts:
    """What there is; toolkits are looked for only where there is a driver."""
    found: Driver | None = driver.ask(environment)
    toolkits = search.toolkits(environment, search.package_folders()) if found and found.cards else ()
    return Facts(found, tuple(toolkits))


def concluded(gpu: int = 0) -> tuple[Facts, Conclusion]:
    """The facts as card `gpu` sees them, and what follows."""
    facts = gather(os.environ)
    return facts, conclude(facts, gpu)


@lru_cache(maxsize=4)
def ready(gpu: int, place: Path, host: str) -> Ready:
    """A home for card `gpu` below `place`, with `host` as nvcc's C++ compiler; asked once in a process."""
    _, conclusion = concluded(gpu)
    if conclusion.plan is None:
        return Ready(None, conclusion.reason)
    try:
        return Ready(prepare(conclusion.plan, place, host))
    except HomeError as error:
        release = ".".join(map(str, conclusion.plan.toolkit.release))
        return Ready(None, f"{conclusion.plan.card.words} is not used, CUDA {release} was found, but {error}")

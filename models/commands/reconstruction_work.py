"""What a reconstruction is to do, and the command lines of its steps."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from data.errors import UserError
from data.io.clock import phase
from data.io.streams import say
from models.commands import functions
from models.commands.command import ExperimentConfig, Selected
from models.commands.flags import DTU, Flag
from models.commands.printed import command_line, given_flags, of_the_scene
from models.requests import VERTEX, EvaluationRequest, MeshRequest
from models.results.callback import Callback
from models.results.trained import TrainedModel

CONF = Path("confs/fast.conf")


@dataclass(frozen=True)
class Reconstruction:
    """The results of `reconstruct`; `folder` also has result.html, images and the other files of docs/usage.md."""

    folder: Path
    mesh: Path | None  # coloured, in `frame` of the request; None if no surface was found
    metrics: dict[str, Any]  # those of docs/figures.md by name, with their units
    notes: tuple[str, ...] = ()  # sentences on what is missing or failed


@dataclass(frozen=True)
class Work(Selected):
    """What a reconstruction is to do."""

    photographs: Mapping[str, Any]  # the arguments of `prepare` besides conf and `overwrite`
    minutes: float | str | None
    mesh: MeshRequest
    evaluation: EvaluationRequest
    overwrite: bool
    language: str | None
    callbacks: Sequence[Callback]

    def read(self) -> ExperimentConfig:
        """The conf with the overrides."""
        return functions.read_conf(self.conf or "", self.case, self.overrides)

    def opened(self, conf: ExperimentConfig) -> TrainedModel:
        """The model of the newest checkpoint."""
        return functions.open_model(conf, device=self.device, gpu=self.gpu)

    def train(self, conf: ExperimentConfig) -> None:
        """Train from the newest checkpoint, if there is one."""
        functions.train(
            conf, is_continue=True, device=self.device, gpu=self.gpu, language=self.language, callbacks=self.callbacks
        )

    def with_values(self, settings: Mapping[str, str]) -> Work:
        """The work with other values of the conf."""
        kept = self.without(*settings)
        return replace(kept, overrides=(*kept.overrides, *(f"{key}={value}" for key, value in settings.items())))

    def typed(self, mode: str, flags: Sequence[Flag], **others: Any) -> str:
        """The command line of a mode; `others`: values of flags other than those given."""
        values = {**vars(self), **self.photographs, **vars(self.evaluation), **vars(self.mesh), "overwrite": False}
        values |= {"colour": None if self.mesh.color == VERTEX else self.mesh.color, **others}
        values |= {"protocol": self.evaluation.dtu and DTU, "scale": self.photographs["scale"] or None}
        return command_line([*of_the_scene(self, self.conf), "--mode", mode, *given_flags(values, flags)])

    @contextlib.contextmanager
    def step(self, number: int, mode: ModuleType, name: str, **others: Any) -> Iterator[ExperimentConfig]:
        """Print the command line of a step, and count the time of the body for the phase `name`; gives the conf."""
        say(f"step {number} of 5: {self.typed(mode.COMMAND.name, mode.COMMAND.flags, **others)}")
        with phase(name):
            yield self.read()


def case_of(images: Path) -> str:
    """The name of the folder or video without special characters; raises UserError if nothing remains."""
    source = images.resolve()
    name = re.sub(r"[^\w-]+", "_", source.stem if source.is_file() else source.name).strip("_-")
    if not name:
        raise UserError(
            f"--images {images}: its name contains no letter or digit, so it is no valid scene name; pass --case NAME"
        )
    return name

"""What a kind of model is to the trainer and to the results. Nothing beyond this room asks which kind it has.

A kind turns a batch into an objective: named terms, each a sum and a count, so that a batch may be taken in parts.
Everything it draws or shows is passed in or handed out as numbers; its state is its networks and its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from data.rays import Rays
from data.scenes.scene import Scene
from models.machine.backend import jt
from models.machine.ranks.ranks import ALONE, Ranks
from models.structs import Objective, RayView, Var

Noise = Mapping[str, np.ndarray]  # the jitter of a batch by name, each with a row per entry of the batch
Settled = Any  # what a kind settles of some entries without gradients; handed back to it as it came


@dataclass(frozen=True)
class StepContext:
    """The step at which something is computed, and its background."""

    step: int  # finished optimiser steps
    background_rgb: np.ndarray | None  # [3], behind everything; None for black


@dataclass(frozen=True)
class LevelSet:
    """The field whose level set is the surface; minus the field is marched, at a threshold."""

    outward: Callable[[np.ndarray], np.ndarray]  # points float32 [P, 3] -> [P, 1], growing outwards
    threshold: float  # of minus the field, where the user gives none
    quantity: str  # what the field is, for messages
    bounded: bool = False  # a signed distance: its slope is about 1 wherever it is asked
    # An increasing map of values float64 [...] after which they vary evenly in space; None for the values themselves.
    evened: Callable[[np.ndarray], np.ndarray] | None = None
    # Points float32 [P, 3] -> values [P, 1] and their slopes [P, 3]; None for a field that is too rough to follow.
    gradient: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    # Points and unit normals float32 [P, 3] -> RGB [P, 3] in [0, 1] as seen from outside along the normal.
    color: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    background: str = "masks"  # what explains what is behind the object to this kind of model, for messages


class Batch(Protocol):
    """What a step is computed from: R entries that can be taken in parts."""

    def __len__(self) -> int:
        """R."""

    def part(self, start: int, stop: int) -> Self:
        """The entries start..stop-1."""

    def arrays(self) -> dict[str, np.ndarray]:
        """All numbers in it by name, as they are saved with a refused step."""

    def words(self) -> dict[str, np.ndarray]:
        """The same by what they are, for a message that says which is not finite."""


class Sampler(Protocol):
    """Batches without end."""

    def next(self) -> Batch:
        """The next batch."""

    def state(self) -> dict[str, Any]:
        """All that decides the batches to come, as JSON values; `generator` among them is a PCG64's state."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; raises UserError, with nothing changed, where it does not fit."""


class Parameters(Protocol):
    """The trained parameters as a kind may change them between steps; their moments and their averages follow."""

    def keep(self, network: str, rows: np.ndarray) -> None:
        """Cut every parameter of a network to these rows (first axis), in this order; rows may repeat."""

    def append(self, network: str, values: Mapping[str, np.ndarray]) -> None:
        """Add rows to every parameter of a network, by name; their moments start at zero, their averages there."""

    def replace(self, network: str, name: str, values: np.ndarray) -> None:
        """Other values for one parameter, of its shape; its moments start at zero, its averages there."""


class Model(Protocol):
    """A model of some kind with its networks. All randomness is passed in as numbers."""

    entries: str  # what a batch consists of, for messages
    shows_pictures: bool  # whether `view` takes the rays of whole pictures (`PictureRays`) and no others
    # Others that make each step too, at the same time: a kind whose entries cannot be shared may share its `objective`.
    # No rank does such a step again by itself.
    ranks: Ranks
    warm_up: int  # steps over which its rates rise

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks by the names they have in checkpoints, in the order their parameters are optimised in."""

    @property
    def level_set(self) -> LevelSet | None:
        """What a mesh is made of; None where there is no surface."""

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> Sampler:
        """What the batches come from."""

    def batch(self, arrays: Mapping[str, np.ndarray]) -> Batch:
        """The batch that has these `Batch.arrays`; raises ValueError, KeyError or TypeError where it has others."""

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """The jitter of one batch; None, without a draw, where the conf asks for none."""

    def share(self, batch: Batch, rank: int, size: int) -> slice | None:
        """Of the entries those that one of `size` processes takes, which differ; None where each takes all of them."""

    def settle(self, batch: Batch, noise: Noise | None, context: StepContext) -> Settled:
        """What of some entries is decided without gradients; `objective` takes it, or settles it itself."""

    def objective(self, batch: Batch, noise: Noise | None, context: StepContext, settled: Settled = None) -> Objective:
        """The terms of the training loss of some entries."""

    def scalars(self, output: Any, losses: Mapping[str, Var]) -> dict[str, Var]:
        """What is plotted of a step, each [1], by TensorBoard name; `Loss/loss` and `Statistics/psnr` among them.

        losses: the terms' means by name, and their weighted sum as `total`.
        """

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """What a progress bar says of the values of `scalars`, besides loss and PSNR."""

    def view(self, rays: Rays, context: StepContext) -> RayView:
        """What R rays show, without jitter."""

    def view_fully(self, rays: Rays, context: StepContext) -> RayView:
        """The same with nothing spared where nothing is seen: what tells the memory that a picture can take."""

    def sharpness(self) -> float | None:
        """inv_s of a surface; None for what has none."""


class PlainModel:
    """What a kind gets for nothing: one learning rate, no state but the networks, nothing to do around a step."""

    entries = "rays"
    shows_pictures = False
    ranks: Ranks = ALONE
    warm_up = 0  # steps over which all rates rise linearly, the first step's included; beside train.warm_up_end

    def share(self, batch: Batch, rank: int, size: int) -> slice | None:
        """As many entries for each process, where there is one for each."""
        count = len(batch)
        return slice(count * rank // size, count * (rank + 1) // size) if count >= size else None

    def rates(self, step: int) -> Mapping[str, float]:
        """Factor on the learning rate by network or `<network>.<parameter>`; 1 where neither is named."""
        del step
        return {}

    def before_step(self, context: StepContext) -> None:
        """Called before the batch of a step is drawn."""

    def after_collapse(self, step: int) -> str:
        """Called where the training went back from this step, since renderings had become worse.

        What may have caused it is put off until then, and said in the end of a sentence; "" where there is nothing.
        """
        del step
        return ""

    def acts_after(self, step: int) -> bool:
        """Whether `after_step` has work after this step, counted from 0; the step is waited for then."""
        del step
        return False

    def after_step(self, parameters: Parameters, context: StepContext, gradients: Mapping[str, Var]) -> None:
        """Called where `acts_after` says so and the step was taken, with d loss / d parameter by `<network>.<name>`.

        So are the gradients of what the objective says is watched.
        """

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Take on the shapes of a checkpoint, network -> name -> shape, before its values are read.

        Where the number of rows changes, `fields.state.take_rows` does it; other shapes are refused as they are read.
        """

    def buffers(self) -> dict[str, np.ndarray]:
        """Arrays beside the networks that a resume needs, of numbers or truth values."""
        return {}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Take back what `buffers` gave; raises ValueError where it does not fit."""
        if buffers:
            raise ValueError(f"{next(iter(buffers))} does not belong to this kind of model")

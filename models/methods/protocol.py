"""The interface of a method to the trainer and to the results; code outside this package does not depend on the method.

A method turns a batch into an objective: named terms, each a sum and a count, so that a batch can be split. Random
numbers are passed in as arrays, images are returned as arrays; its state is its networks and its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from data.rays import Rays
from models.config.blocks import TrainConfig
from models.machine.backend import jt
from models.plan import Decision
from models.structs import Noise, Objective, RayView, Var

if TYPE_CHECKING:
    from data.scenes.scene import Posed, Scene
    from models.estimators.occupancy import SeenSpace

Precomputed = Any  # the part of a chunk that is computed once, without gradients


@dataclass(frozen=True)
class LevelSet:
    """The field whose level set is the surface; marching cubes runs on its negative, at a threshold."""

    outward: Callable[[np.ndarray], np.ndarray]  # points float32 [P, 3] -> [P, 1], increasing outwards
    threshold: float  # of the negative field, unless the user gives one
    quantity: str  # name of the field, for messages
    bounded: bool = False  # a signed distance, whose slope is about 1 everywhere
    # An increasing function of values float64 [...], after which they vary linearly in space; None for the identity.
    evened: Callable[[np.ndarray], np.ndarray] | None = None
    # Points float32 [P, 3] -> values [P, 1] and their slopes [P, 3]; None if the field is too rough for its gradient.
    gradient: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    # The space that cameras see, for the spacing of the points of a mesh's grid; None where it would be no help.
    seen_space: Callable[[float], SeenSpace | None] | None = None
    # Points and unit normals float32 [P, 3] -> RGB [P, 3] in [0, 1] as seen from outside along the normal.
    color: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    background: str = "masks"  # what models the background in this method, for messages


class Batch(Protocol):
    """The input of a step: R entries, which can be split."""

    def __len__(self) -> int:
        """The number of entries R."""

    def part(self, start: int, stop: int) -> Self:
        """The entries start to stop - 1."""

    def words(self) -> dict[str, np.ndarray]:
        """The arrays by a description, for the message that names the one with NaN or Inf."""


class Sampler(Protocol):
    """An endless sequence of batches of a scene."""

    def next(self) -> Batch:
        """Draw the next batch and advance the state."""

    def state(self) -> dict[str, Any]:
        """All state of the next batches as JSON values; `generator` is the state of a PCG64."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`; raises UserError, with nothing changed, if it does not fit."""


class Parameters(Protocol):
    """The trained parameters, as a method may change them between steps; moments follow."""

    def keep(self, network: str, rows: np.ndarray) -> None:
        """Keep only these rows (first axis) of every parameter of a network, in this order; rows may repeat."""

    def append(self, network: str, values: Mapping[str, np.ndarray]) -> None:
        """Add rows to every parameter of a network, by name, with moments of zero."""


class Model(Protocol):
    """A method with its networks. All random numbers are passed in.

    By default it has one learning rate, no state but the networks, and nothing to do around a step.
    """

    entries: str = "rays"  # name of the entries of a batch, for messages
    shows_pictures: bool = False  # whether `view` takes only the rays of whole images (`ImageRays`)
    acts_after: bool = False  # whether `after_step` is called; the device is waited for then
    weights: Mapping[str, Decision] = {}  # of the losses that the plan uses, by name
    train: TrainConfig

    @property
    def networks(self) -> dict[str, jt.nn.Module]:
        """The networks by their names in checkpoints, in the order in which their parameters are optimised."""

    @property
    def level_set(self) -> LevelSet | None:
        """The field of a mesh; None if there is no surface."""

    def sampler(self, scene: Scene, batch_size: int, generator: np.random.Generator) -> Sampler:
        """Batches of a scene."""

    def see(self, views: Posed) -> None:
        """Take the cameras of a scene, for images and meshes; `sampler` does it, too."""

    def draw_noise(self, entries: int, generator: np.random.Generator) -> Noise | None:
        """The jitter of one batch; None, without drawing numbers, if the conf disables it."""
        return None

    @property
    def behind(self) -> np.ndarray | None:
        """The colour [3] behind everything in images; None for black."""
        return self.train.background_rgb

    def precompute(self, batch: Any, noise: Noise | None) -> Precomputed:
        """The part of a chunk that is computed once, without gradients; `objective` takes it, or computes it itself.

        batch: one of the method's sampler, or a part of it. None: nothing is computed ahead.
        """
        return None

    def objective(self, batch: Any, noise: Noise | None, step: int, precomputed: Precomputed = None) -> Objective:
        """The terms of the training loss after `step` finished steps."""

    def scalars(self, output: Mapping[str, Var], losses: Mapping[str, Var]) -> dict[str, Var]:
        """The scalars [1] of a step by TensorBoard tag; `Loss/loss` and `Statistics/psnr` among them.

        losses: the means of the terms by name, and their weighted sum as `total`.
        """

    def progress_text(self, scalars: Mapping[str, float]) -> str:
        """The text of the progress bar, besides loss and PSNR, from the values of `scalars`."""

    def view(self, rays: Rays, step: int) -> RayView:
        """R rays rendered without jitter."""

    def view_fully(self, rays: Rays, step: int) -> RayView:
        """The same with all networks evaluated at all samples: an upper bound of the memory of an image."""
        return self.view(rays, step)

    def sharpness(self) -> float | None:
        """inv_s of a surface; None if the method has none."""
        return None

    def rates(self, step: int) -> dict[str, float]:
        """Factors on the learning rate by network or `<network>.<parameter>`; 1 for others."""
        return {}

    def begin(self) -> None:
        """Initialise a new training from the scene; called after `sampler`, unless a checkpoint is resumed."""
        return

    def before_step(self, step: int) -> None:
        """Called before the batch of a step is drawn."""
        return

    def after_collapse(self, step: int) -> str:
        """Called after training returned to a checkpoint because renderings had become worse up to this step.

        Puts off what may have caused it until this step; returns the end of a sentence about it, or "".
        """
        return ""

    def after_step(self, parameters: Parameters, step: int) -> None:
        """Called if `acts_after` is true and the step was not skipped."""
        return

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        """Adapt to the shapes of a checkpoint, network -> name -> shape, before its values are read.

        `fields.state.take_rows` changes the number of rows; other differences are rejected when the values are read.
        """

    def buffers(self) -> dict[str, np.ndarray]:
        """Arrays that a resume needs besides the networks: numbers or booleans."""
        return {}

    def load_buffers(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Restore `buffers`; raises ValueError if it does not fit."""
        if buffers:
            raise ValueError(f"{next(iter(buffers))} does not belong to this method")

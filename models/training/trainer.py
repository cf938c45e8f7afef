"""One optimiser step, and the state that a resume needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from data.rays import PixelBatch
from data.sampler import PixelSampler
from models.backend import jt
from models.config import TrainConfig
from models.fields.state import export_state, import_state, named_parameters
from models.rendering.renderer import Fields, NeuSRenderer
from models.structs import LossTerms, RenderOutput, SampleNoise, Var
from models.training import guard, losses, schedules
from models.training.checkpoint import MOMENTS, Checkpoint, CheckpointError
from models.training.optimizer import Adam

WHITE = np.ones(3, np.float32)


@dataclass(frozen=True)
class StepOutput:
    """What one step computed, not yet waited for."""

    terms: LossTerms
    render: RenderOutput
    target: Var  # [R, 3]
    mask: Var  # [R, 1]

    def scalars(self) -> dict[str, float]:
        """The published TensorBoard scalars; waits for the device."""
        weight_max = self.render.weights.max(dim=1, keepdims=True)
        count = self.mask.sum() + losses.COUNT_EPS
        values = {
            "Loss/loss": self.terms.total,
            "Loss/color_loss": self.terms.color,
            "Loss/eikonal_loss": self.terms.eikonal,
            "Loss/mask_loss": self.terms.mask,
            "Statistics/s_val": 1.0 / self.render.inv_s,
            "Statistics/cdf": (self.render.cdf[:, :1] * self.mask).sum() / count,
            "Statistics/weight_max": (weight_max * self.mask).sum() / count,
            "Statistics/psnr": losses.masked_psnr(self.render.rgb, self.target, self.mask),
        }
        return {name: float(value.item()) for name, value in values.items()}


def published_networks(fields: Fields) -> dict[str, jt.nn.Module]:
    """The networks by the names they have in checkpoints, in the order their parameters are optimised in."""
    networks = {"nerf": fields.nerf} if fields.nerf is not None else {}
    return networks | {
        "sdf_network_fine": fields.sdf,
        "variance_network_fine": fields.sharpness,
        "color_network_fine": fields.color,
    }


class Trainer:
    """Takes steps; owns the optimiser, the step count and the random numbers of the jitter.

    Without a sampler it can differentiate given batches and nothing else.
    """

    def __init__(
        self,
        renderer: NeuSRenderer,
        sampler: PixelSampler | None,
        conf: TrainConfig,
        generator: np.random.Generator,
    ) -> None:
        self.renderer = renderer
        self.sampler = sampler
        self.conf = conf
        self.generator = generator
        self.finished_steps = 0
        self.networks = published_networks(renderer.fields)
        self._parameters = {
            f"{network}.{name}": value
            for network, module in self.networks.items()
            for name, value in named_parameters(module).items()
        }
        self.optimizer = Adam(list(self._parameters.values()))
        self.guard = guard.Guard()

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return schedules.learning_rate(self.finished_steps, self.conf)

    @property
    def cos_anneal_ratio(self) -> float:
        """The ratio of the next step, and of renderings now."""
        return schedules.cos_anneal_ratio(self.finished_steps, self.conf)

    @property
    def background_rgb(self) -> np.ndarray | None:
        """Colour [3] behind everything; None for black."""
        return WHITE if self.conf.use_white_bkgd else None

    def step(self) -> StepOutput:
        """One batch, one update; starts the computation and does not wait for it.

        Where loss or gradients are not finite the update changes nothing; `guard` knows after the next step, or after
        `settle`.
        """
        batch = self.sampler.next()
        inputs = guard.StepInputs(self.finished_steps, batch, self._draw_noise(batch))
        output, gradients = self.differentiate(batch, inputs.noise)
        readings = guard.readings(output.terms.total, gradients, self.optimizer.parameters)
        verdict = guard.accepted(readings)
        self.settle()
        self.optimizer.step(gradients, self.learning_rate, verdict)
        self.guard.watch(inputs, readings, verdict)
        self.finished_steps += 1
        return output

    def settle(self) -> None:
        """Wait for the last step and hear its verdict."""
        if not self.guard.settle(self._parameters):
            self.optimizer.refuse()

    def differentiate(self, batch: PixelBatch, noise: SampleNoise | None) -> tuple[StepOutput, list[Var]]:
        """Loss of a batch and its gradients, in the order of `parameter_names`."""
        target = jt.array(batch.rgb)
        mask = losses.binary_mask(None if batch.mask is None else jt.array(batch.mask), len(batch.rays), self.conf)
        render = self.renderer.render(batch.rays, noise, self.cos_anneal_ratio, self.background_rgb)
        terms = losses.training_loss(render, target, mask, self.conf)
        gradients = jt.grad(terms.total, self.optimizer.parameters)
        return StepOutput(terms, render, target, mask), gradients

    @property
    def parameter_names(self) -> list[str]:
        """`<network>.<name>` of every trained parameter, in the optimiser's order."""
        return list(self._parameters)

    def random_states(self) -> dict[str, Any]:
        """What decides the batches and the jitter to come, as JSON values."""
        return {"sampler": self.sampler.state(), "jitter": self.generator.bit_generator.state}

    def reseed(self, *entropy: int) -> None:
        """Other batches and other jitter from here on, decided by `entropy`."""
        pixels, jitter = (np.random.default_rng(seed) for seed in np.random.SeedSequence(entropy).spawn(2))
        self.sampler.restore(self.sampler.state() | {"generator": pixels.bit_generator.state})
        self.generator.bit_generator.state = jitter.bit_generator.state

    def _draw_noise(self, batch: PixelBatch) -> SampleNoise | None:
        """Jitter of one batch; None where the conf asks for none."""
        if self.renderer.conf.perturb == 0.0:
            return None
        rays, outside = len(batch.rays), self.renderer.conf.n_outside
        return SampleNoise(
            inside=self.generator.random((rays, 1), dtype=np.float32),
            outside=self.generator.random((rays, outside), dtype=np.float32),
        )

    def checkpoint(self, state: dict[str, Any]) -> Checkpoint:
        """Everything `restore` needs, as arrays and JSON values; `state` is added to it."""
        self.settle()
        moments = zip(MOMENTS, (self.optimizer.exp_avg, self.optimizer.exp_avg_sq), strict=True)
        return Checkpoint(
            step=self.finished_steps,
            tensors={name: export_state(module) for name, module in self.networks.items()},
            moments={
                moment: {name: var.numpy() for name, var in zip(self._parameters, values, strict=True)}
                for moment, values in moments
            },
            adam_steps=self.optimizer.steps,
            state=state | self.random_states(),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint: weights, moments, step, and the random states where it has them.

        A checkpoint of the published code has no random states: its steps go on with those of the seed.
        Raises CheckpointError, naming the entry, where it does not fit the conf's networks.
        """
        self.guard.forget()
        restore_networks(self.networks, checkpoint)
        exp_avg, exp_avg_sq = (
            [self._moment(checkpoint, moment, name) for name in self._parameters] for moment in MOMENTS
        )
        self.optimizer.restore(checkpoint.adam_steps, exp_avg, exp_avg_sq)
        self.finished_steps = checkpoint.step
        if "sampler" in checkpoint.state:
            self.sampler.restore(checkpoint.state["sampler"])
            self.generator.bit_generator.state = checkpoint.state["jitter"]

    def _moment(self, checkpoint: Checkpoint, moment: str, name: str) -> np.ndarray:
        """One saved moment in the shape of its parameter."""
        shape = self._parameters[name].shape
        values = checkpoint.moments.get(moment, {}).get(name)
        if values is None or values.size != int(np.prod(shape)):
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} has no {moment} for {name} of shape {shape}"
            )
        return values.astype(np.float32).reshape(shape)


def restore_networks(networks: dict[str, jt.nn.Module], checkpoint: Checkpoint) -> None:
    """Overwrite weights only; raises CheckpointError, naming the entry, where they do not fit the conf's networks."""
    for name, module in networks.items():
        try:
            if name not in checkpoint.tensors:
                raise ValueError("the network is missing")
            import_state(module, checkpoint.tensors[name])
        except ValueError as error:
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} does not fit the conf: {name}: {error}"
            ) from error

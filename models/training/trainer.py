"""One optimiser step, and the state that a resume needs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from data.errors import is_allocation_failure
from models.config.blocks import TrainConfig
from models.fields.state import export_state, import_state, named_parameters
from models.machine import backend, memory
from models.methods.protocol import Batch, Model, Sampler
from models.ops.update import readings
from models.structs import Noise
from models.training.checkpoint import MOMENTS, Checkpoint, CheckpointError
from models.training.gradient import TOTAL, BatchGradient, GradientSum, Sum
from models.training.guard import Guard
from models.training.optimizer import Optimizer, WeightAverage, learning_rate


def generators(seed: int) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Of initial weights, pixels and jitter."""
    initial, pixels, jitter = (np.random.default_rng(one) for one in np.random.SeedSequence(seed).spawn(3))
    return initial, pixels, jitter


class Trainer:
    """Takes steps; holds the optimiser, the step count and the random generators of the jitter."""

    parts = 1  # processes that share a batch

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        conf: TrainConfig,
        generator: np.random.Generator,
        averaged: Model | None = None,
    ) -> None:
        """`averaged` is a copy of the model, for the mean of the weights; None without averaging."""
        backend.allow_tf32(conf.tf32)
        self.model = model
        self.sampler = sampler
        self.conf = conf
        self.generator = generator
        self.finished_steps = 0
        self.rate_factor = 1.0  # on the learning rate of the conf
        self.schedule = learning_rate(conf)
        self.networks = model.networks
        self.average = None if averaged is None else WeightAverage(averaged, conf.ema_decay)
        self.optimizer = Optimizer(
            {name: named_parameters(module) for name, module in self.networks.items()},
            conf.adam_beta_2,
            conf.adam_epsilon,
            conf.optimizer,
        )
        self.guard = Guard()
        self.ray_chunk = conf.batch_size  # entries that are differentiated at a time
        self._has_halved = False

    @property
    def result_model(self) -> Model:
        """The model for images and meshes: with the averaged weights, if there are any."""
        if self.average is None:
            return self.model
        self.average.model.load_buffers(self.model.buffers())
        return self.average.model

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self.rate_factor * self.schedule(self.finished_steps)

    def scalars(self, gradient: BatchGradient) -> dict[str, float]:
        """The TensorBoard scalars of a step; waits for the device."""
        values = self.model.scalars(gradient.output, gradient.losses)
        return {name: float(value.item()) for name, value in values.items()}

    def step(self) -> BatchGradient:
        """One batch, one update; starts the computation and does not wait for it.

        If loss, gradients or the update are not finite, no weight changes; `guard` detects it in the next step, after
        its gradient was launched, or in `finish_step`. The host waits for a GPU only there, and where a model reads
        values from the GPU for its batch.
        """
        step, parameters = self.finished_steps, self.optimizer.parameters
        self.model.before_step(step)
        batch = self.sampler.next()
        noise = self.model.draw_noise(len(batch), self.generator)
        total = GradientSum(self.model, *self.own_part(batch, noise), step, parameters)
        while not total.is_complete:
            try:
                for chunk in total.prepare_chunks(self.ray_chunk):
                    total.add(chunk)
            except (RuntimeError, MemoryError) as error:
                self._halve_chunk_if_out_of_memory(error)
        gradient = replace(total.result(), entries=len(batch))
        self.finish_step()
        seen, is_finite = readings(gradient.losses[TOTAL], gradient.gradients, parameters)
        rates = self.model.rates(step)
        is_taken = self.optimizer.step(gradient.gradients, self.learning_rate, is_finite, rates)
        self.guard.watch(is_taken, seen, step, batch, noise, gradient, self.optimizer.settings)
        self.finished_steps += 1
        if self.model.acts_after and self.finish_step():
            self.model.after_step(self.optimizer, step)
        if self.average is not None:
            self.average.update(parameters, self.finished_steps)
        return gradient

    def own_part(self, batch: Batch, noise: Noise | None) -> tuple[Batch, Noise | None, Sum | None]:
        """What this process differentiates of a batch, and the sum over the processes that share it, if any do."""
        return batch, noise, None

    def gradient_of(self, batch: Batch, noise: Noise | None, chunk: int) -> BatchGradient:
        """Losses and gradients of a batch, `chunk` entries at a time, by this process alone; changes no state."""
        total = GradientSum(self.model, batch, noise, None, self.finished_steps, self.optimizer.parameters)
        for part in total.prepare_chunks(chunk):
            total.add(part)
        return total.result()

    def _halve_chunk_if_out_of_memory(self, error: Exception) -> None:
        """After a failed allocation, halve the chunk size from now on, reported once; raises other errors again."""
        if not is_allocation_failure(error) or self.ray_chunk <= 1:
            raise error
        memory.release_after_failure(error)
        halved = -(-self.ray_chunk // 2)
        if not self._has_halved:
            logging.getLogger(__name__).warning(
                f"step {self.finished_steps + 1} does not fit into memory with {self.ray_chunk} {self.model.entries} "
                f"at a time; continuing more slowly with {halved} (or fewer): set train.ray_chunk = {halved}, or lower "
                "train.memory_limit"
            )
        self.ray_chunk, self._has_halved = halved, True

    def finish_step(self) -> bool:
        """Wait for the last step and read its result: False if it was skipped and this was not reported before."""
        optimizer = self.optimizer
        was_taken = self.guard.finish_step(optimizer.named_parameters, lambda: optimizer.named_moments)
        if not was_taken:
            optimizer.steps -= 1
        return was_taken

    def random_states(self) -> dict[str, Any]:
        """The states of the generators of batches and jitter, as JSON values."""
        return {"sampler": self.sampler.state(), "jitter": self.generator.bit_generator.state}

    def set_random_states(self, states: Mapping[str, Any]) -> None:
        """Restore `random_states`; raises UserError if they do not fit."""
        self.sampler.restore(states["sampler"])
        self.generator.bit_generator.state = states["jitter"]

    def reseed(self, *entropy: int) -> None:
        """Reseed batches and jitter with `entropy`."""
        pixels, jitter = (np.random.default_rng(seed) for seed in np.random.SeedSequence(entropy).spawn(2))
        self.sampler.restore(self.sampler.state() | {"generator": pixels.bit_generator.state})
        self.generator.bit_generator.state = jitter.bit_generator.state

    def checkpoint(self, state: Mapping[str, Any] | None = None) -> Checkpoint:
        """Everything `restore` needs, as arrays and JSON values; `state` is added to it."""
        self.finish_step()
        return Checkpoint(
            step=self.finished_steps,
            tensors={name: export_state(module) for name, module in self.networks.items()},
            moments=self.optimizer.named_moments,
            adam_steps=self.optimizer.steps,
            state={**(state or {}), **self.random_states()},
            ema={} if self.average is None else self.average.export(),
            buffers=self.model.buffers(),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint: weights, moments, step, and random states if it has them.

        A checkpoint of the published code has no random states; the states of the seed are used. Raises
        CheckpointError, naming the entry, if it does not fit the networks of the conf.
        """
        self.guard.forget()
        restore_model(self.model, checkpoint)
        if self.average is not None:
            restore_model(self.average.model, replace(checkpoint, tensors=checkpoint.ema or checkpoint.tensors))
        shapes = {name: tuple(value.shape) for name, value in self.optimizer.named_parameters.items()}
        exp_avg, exp_avg_sq = (
            [_moment(checkpoint, moment, name, shape) for name, shape in shapes.items()] for moment in MOMENTS
        )
        self.optimizer.restore(checkpoint.adam_steps, exp_avg, exp_avg_sq)
        self.finished_steps = checkpoint.step
        if "sampler" in checkpoint.state:
            self.set_random_states(checkpoint.state)


def restore_model(model: Model, checkpoint: Checkpoint) -> None:
    """Overwrite weights and buffers; raises CheckpointError, naming the entry, if they do not fit the conf."""
    tensors, place = checkpoint.tensors, ""
    try:
        model.adapt({name: {key: array.shape for key, array in named.items()} for name, named in tensors.items()})
        for name, module in model.networks.items():
            place = f"{name}: "
            if name not in tensors:
                raise ValueError("the network is missing")
            import_state(module, tensors[name])
        place = ""
        model.load_buffers(checkpoint.buffers)
    except ValueError as error:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} does not fit the conf: {place}{error}"
        ) from error


def _moment(checkpoint: Checkpoint, moment: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A saved moment in the shape of its parameter."""
    values = checkpoint.moments.get(moment, {}).get(name)
    if values is None or values.size != int(np.prod(shape)):
        raise CheckpointError(f"the checkpoint of step {checkpoint.step} has no {moment} for {name} of shape {shape}")
    return values.astype(np.float32).reshape(shape)

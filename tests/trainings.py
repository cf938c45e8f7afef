"""Trainers and trainings as tests build them, and what holds for each model: gradients that agree, and that all learns.

A small scene with a conf of its own and the command line on it; the samples of a packed batch, read to the host, and
batches of given samples; and an allocation that fails when arrays are computed, not when they are created, and each
time: as on a GPU.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from runs import ROOT, SHORT, saved
from synthetic_scene import write_scene

import exp_runner
from data.prepare.load import load_scene
from data.scenes.sampler import PixelSampler
from data.scenes.scene import Scene
from models.checkpoints.scenes import measured
from models.conf import ExperimentConfig
from models.machine.backend import jt
from models.methods.block import ModelConfig
from models.methods.protocol import Batch, Model
from models.methods.registry import METHODS, Method, build_model, decide
from models.ops.march import PackedSamples
from models.plan import UNSWEPT, wants_masks
from models.rendering.losses import binary_mask
from models.training.trainer import Trainer

Gradients = tuple[dict[str, float], dict[str, np.ndarray]]


def trainer_of(conf: ExperimentConfig, scene: Scene | None = None, steps: int = 0, before=UNSWEPT) -> Trainer:
    """A trainer of a conf on its scene, or on one that is loaded already, after some steps; without depth maps."""
    scene = scene or load_scene(conf.dataset)
    model = build_model(
        conf.model,
        conf.train,
        np.random.default_rng(0),
        decide(conf.model, conf.train, measured(scene), before),
    )
    sampler = model.sampler(scene, conf.train.batch_size, np.random.default_rng(1))
    trainer = Trainer(model, sampler, conf.train, np.random.default_rng(2))
    for _ in range(steps):
        trainer.step()
    return trainer


def gradients(trainer: Trainer, batch: Batch, chunk: int, noise: dict[str, np.ndarray] | None = None) -> Gradients:
    """Losses and the gradient of each parameter, by name, as float64."""
    found = trainer.gradient_of(batch, noise, chunk)
    losses = {name: float(value.item()) for name, value in found.losses.items()}
    named = zip(trainer.optimizer.names, found.gradients, strict=True)
    return losses, {name: value.numpy().astype(np.float64) for name, value in named}


def assert_same_gradients(found: Gradients, expected: Gradients, loss: float = 1e-5, slope: float = 1e-5) -> None:
    """Losses within `loss`, relative; each gradient within `slope` of its length."""
    assert found[0] == pytest.approx(expected[0], rel=loss, abs=1e-7)
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        assert np.linalg.norm(found[1][name] - value) <= slope * np.linalg.norm(value) + 1e-9, name


def assert_every_parameter_moves(folder: Path) -> None:
    """From the checkpoint of step 3 to that of step 6."""
    first, second = saved(folder, 3), saved(folder, 6)
    for network, named in first.tensors.items():
        for name, values in named.items():
            assert np.any(values != second.tensors[network][name]), f"{network}.{name}"


def stopped_after(step: int, trained: Path, folder: Path) -> Path:
    """A folder with no more than the checkpoint that a training in `trained` made of this step."""
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copy(trained / f"checkpoints/ckpt_{step:06d}.safetensors", folder / "checkpoints")
    return folder


BLOCKS = ("general", "dataset", "train")  # what every conf has; none of the files of a kind that is built in


class ToyBlock(ModelConfig):
    """The block of a kind whose weights depend on no block: any one can go on from any other."""


@contextmanager
def registered(name: str, kind: Method) -> Iterator[None]:
    """Within it there is a further kind of model."""
    METHODS[name] = kind
    try:
        yield
    finally:
        del METHODS[name]


def write_conf(folder: Path, model: str) -> Path:
    """A scene of a coloured sphere, and a conf that trains the block `model` on it in small batches."""
    write_scene(folder / "scene")
    lines = [f'include required("{ROOT}/confs/base/{name}.conf")' for name in BLOCKS]
    lines += [
        f'general.base_exp_dir = "{folder / "exp"}"',
        f'dataset.data_dir = "{folder / "scene"}"',
        "train { learning_rate = 1e-2, batch_size = 32, report_freq = 1, mask_weight = 0.1 }",
        "train { validate_resolution_level = 2, mesh_resolution = 16 }",
        model,
    ]
    path = folder / "toy.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run_conf(conf: Path, folder: Path, *arguments: str, settings: tuple[str, ...] = SHORT) -> int:
    """The command line on a conf, into `folder`; returns the exit status."""
    assigned = (f"general.base_exp_dir={folder}", "general.recording=[]", *settings)
    flags = [flag for setting in assigned for flag in ("--set", setting)]
    return exp_runner.main(["--conf", str(conf), *arguments, *flags])


class PixelModel(Model):
    """A kind whose batches are random pixels of one image after the other."""

    def sampler(self, scene, batch_size, generator):
        return PixelSampler(scene, batch_size, generator)


def photograph(batch, train):
    """Colours [R, 3] and 0/1 mask [R, 1] that a batch is compared with."""
    mask = None if batch.mask is None or not wants_masks(train) else jt.array(batch.mask)
    return jt.array(batch.rgb), binary_mask(mask, len(batch.rgb))


def on_host(batch):
    """The arrays of the samples of the region, and those of the background as `far`."""
    near, far = (
        None if one is None else SimpleNamespace(**{name: value.numpy() for name, value in vars(one).items()})
        for one in (batch.region, batch.background)
    )
    near.far = far
    return near


def samples_of(offsets, points, directions, depths=None):
    """Packed samples from arrays; those beyond the last offset are of no ray."""
    rays = np.zeros(len(points), np.int32)
    rays[: offsets[-1]] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    depths = np.zeros((len(points), 1)) if depths is None else np.reshape(depths, (-1, 1))
    arrays = (np.int32(offsets), np.int32([len(offsets) - 1]), rays, depths.astype(np.float32), points, directions)
    return PackedSamples(*map(jt.array, arrays))


WORDS = "Unable to alloc cuda device memory"


def without_memory(objective, most, words=WORDS, is_over=lambda: False):
    """An objective whose numbers cannot be computed for more than `most` entries, with `words` of another kind too."""

    def failing(batch, noise, step, settled):
        found = objective(batch, noise, step, settled)
        if len(batch) <= most:
            return found
        name, term = next(iter(found.terms.items()))
        return replace(
            found, terms=found.terms | {name: replace(term, total=term.total + unallocated(term.total, words, is_over))}
        )

    return failing


def unallocated(like, words=WORDS, is_over=lambda: False):
    """Zero, if it could be computed; once the failure is over, it can: arrays may outlive it."""

    def compute(np, data):
        if not is_over():
            raise RuntimeError(words)
        for output in data["outputs"]:
            output[...] = 0

    return jt.numpy_code(like.shape, like.dtype, [like], compute, [compute])


def fail_after(monkeypatch, steps, words=WORDS):
    """From that step of a training on nothing can be computed."""
    original = Trainer.step

    def failing(self):
        if self.finished_steps == steps:
            self.model.objective = without_memory(self.model.objective, 0, words, lambda: Trainer.step is not failing)
        return original(self)

    monkeypatch.setattr(Trainer, "step", failing)

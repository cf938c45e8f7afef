"""Trainers as tests build them, and what holds for each model: which gradients agree, and that all of it learns."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from runs import saved

from data.scenes.load import load_scene
from data.scenes.scene import Scene
from models.methods.conf import ExperimentConfig
from models.methods.protocol import Batch
from models.methods.registry import build_model
from models.training.trainer import Trainer

Gradients = tuple[dict[str, float], dict[str, np.ndarray]]


def trainer_of(conf: ExperimentConfig, scene: Scene | None = None, steps: int = 0) -> Trainer:
    """A trainer of a conf on its scene, or on one that is loaded already, after some steps."""
    model = build_model(conf.model, conf.train, np.random.default_rng(0))
    sampler = model.sampler(scene or load_scene(conf.dataset), conf.train.batch_size, np.random.default_rng(1))
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

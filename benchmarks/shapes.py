"""What is measured: sizes, the conf they stand for, and the batch that both sides take, as one file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import ROOT
from data.errors import UserError
from data.prepare.load import load_scene
from data.rays import PixelBatch, Rays
from data.scenes.sampler import PixelSampler
from models.conf import ExperimentConfig, load_config, to_hocon

SPELLING = re.compile(r"(\d+)x(\d+)\+(\d+)(?:\+(\d+))?")
SEED = 7
RAY_PARTS = ("origins", "directions", "near", "far")


@dataclass(frozen=True)
class Shape:
    """The size of a step: rays, and samples along each."""

    rays: int
    samples: int
    importance: int
    outside: int = 0

    def __str__(self) -> str:
        background = f"+{self.outside}" if self.outside else ""
        return f"{self.rays}x{self.samples}+{self.importance}{background}"


SMALL, FULL, FULL_OUTSIDE = Shape(64, 32, 32), Shape(512, 64, 64), Shape(512, 64, 64, 32)


def parse_shape(text: str) -> Shape:
    """`RAYSxSAMPLES+IMPORTANCE[+OUTSIDE]`; raises UserError for another spelling, or without rays or samples."""
    found = SPELLING.fullmatch(text)
    shape = Shape(*(int(number) for number in found.groups(default="0"))) if found else None
    if shape is None or shape.rays < 1 or shape.samples < 2:
        raise UserError(f"--shape {text}: write it as RAYSxSAMPLES+IMPORTANCE or with +OUTSIDE, such as 512x64+64+32")
    return shape


def shape_conf(shape: Shape, overrides: tuple[str, ...] = ()) -> ExperimentConfig:
    """The released recipe of that kind (wmask, or womask with samples outside) on the bundled scene, at that size.

    The warm-up is left out, so that the first steps move the weights; raises UserError for unusable overrides.
    """
    settings = (
        f"dataset.data_dir={ROOT / 'data/demo'}",
        "train.warm_up_end=0",
        f"train.batch_size={shape.rays}",
        f"model.neus_renderer.n_samples={shape.samples}",
        f"model.neus_renderer.n_importance={shape.importance}",
        f"model.neus_renderer.n_outside={shape.outside}",
    )
    recipe = "womask" if shape.outside else "wmask"
    return load_config(ROOT / f"confs/{recipe}.conf", "benchmark", (*settings, *overrides))


def write_job(path: Path, conf: ExperimentConfig) -> None:
    """An npz with a batch of the conf's scene, and the conf for either side as JSON in `meta`."""
    batch = PixelSampler(load_scene(conf.dataset), conf.train.batch_size, np.random.default_rng(SEED)).next()
    meta = {
        "conf": to_hocon(conf),
        "model": asdict(conf.model),
        "learning_rate": conf.train.learning_rate,
        "igr_weight": conf.train.igr_weight,
        "mask_weight": conf.train.mask_weight,
        "cos_anneal_ratio": 1.0 if conf.train.anneal_end == 0 else 0.0,
        "seed": SEED,
    }
    mask = np.ones((len(batch.rays), 1), np.float32) if batch.mask is None else batch.mask
    rays = {f"ray_{name}": getattr(batch.rays, name) for name in RAY_PARTS}
    np.savez(path, meta=json.dumps(meta), rgb=batch.rgb, mask=mask, **rays)


def read_job(path: Path) -> tuple[dict[str, object], PixelBatch]:
    """What `write_job` wrote: meta, batch."""
    with np.load(path) as file:
        rays = Rays(**{name: file[f"ray_{name}"] for name in RAY_PARTS})
        batch = PixelBatch(rays, file["rgb"], file["mask"], np.zeros(len(rays), np.int32))
        return json.loads(str(file["meta"])), batch

"""What is measured: sizes, the conf they stand for, and the batch that both sides take, as one file."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from data.cameras import camera_rays, image_pixels
from data.errors import UserError
from data.rays import PixelBatch, Rays
from data.scenes.load import load_scene
from data.scenes.sampler import PixelSampler
from data.scenes.scene import Scene
from models.methods.conf import ExperimentConfig, load_config, to_hocon

ROOT = Path(__file__).resolve().parents[1]
SPELLING = re.compile(r"(\d+)x(\d+)\+(\d+)(?:\+(\d+))?")
SEED = 7
IMAGE_SIDE = 200
IMAGE_VIEW = 0
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
    if found is None:
        raise UserError(f"--shape {text}: write it as RAYSxSAMPLES+IMPORTANCE or with +OUTSIDE, such as 512x64+64+32")
    shape = Shape(*(int(number) for number in found.groups(default="0")))
    if shape.rays < 1 or shape.samples < 2:
        raise UserError(f"--shape {text}: there must be at least 1 ray and 2 samples")
    return shape


def shape_conf(shape: Shape, overrides: tuple[str, ...] = ()) -> ExperimentConfig:
    """The released recipe of that kind (wmask, or womask with samples outside) on the bundled scene, at that size.

    The warm-up is left out, so that the first steps move the weights; raises UserError for unusable overrides.
    """
    recipe = "womask" if shape.outside else "wmask"
    settings = (
        f"dataset.data_dir={ROOT / 'data/demo'}",
        "train.warm_up_end=0",
        f"train.batch_size={shape.rays}",
        f"model.neus_renderer.n_samples={shape.samples}",
        f"model.neus_renderer.n_importance={shape.importance}",
        f"model.neus_renderer.n_outside={shape.outside}",
    )
    return load_config(ROOT / f"confs/{recipe}.conf", "benchmark", (*settings, *overrides))


@dataclass(frozen=True)
class Job:
    """What both sides are given."""

    conf: ExperimentConfig
    batch: PixelBatch
    image: Rays  # IMAGE_SIDE x IMAGE_SIDE of them, row-major


def make_job(conf: ExperimentConfig) -> Job:
    """A batch of the conf's scene, and the rays of a square image from its first camera."""
    scene = load_scene(conf.dataset)
    batch = PixelSampler(scene, conf.train.batch_size, np.random.default_rng(SEED)).next()
    return Job(conf, batch, _image_rays(scene))


def _image_rays(scene: Scene) -> Rays:
    """The image spans the photograph, for any size: the published grid stretched."""
    scale = (np.array(scene.size(IMAGE_VIEW)) - 1) / (IMAGE_SIDE - 1)
    pixels = image_pixels(IMAGE_SIDE, IMAGE_SIDE) * scale
    return camera_rays(pixels, scene.intrinsics[IMAGE_VIEW], scene.c2w[IMAGE_VIEW])


def write_job(path: Path, job: Job) -> None:
    """An npz with the arrays of the job, and the conf for either side as JSON in `meta`."""
    train = job.conf.train
    meta = {
        "conf": to_hocon(job.conf),
        "model": asdict(job.conf.model),
        "learning_rate": train.learning_rate,
        "igr_weight": train.igr_weight,
        "mask_weight": train.mask_weight,
        "cos_anneal_ratio": 1.0 if train.anneal_end == 0 else 0.0,
        "seed": SEED,
        "image_side": IMAGE_SIDE,
    }
    rays, image = ({name: getattr(one, name) for name in RAY_PARTS} for one in (job.batch.rays, job.image))
    mask = np.ones((len(job.batch.rays), 1), np.float32) if job.batch.mask is None else job.batch.mask
    np.savez(
        path,
        meta=json.dumps(meta),
        rgb=job.batch.rgb,
        mask=mask,
        **{f"ray_{name}": values for name, values in rays.items()},
        **{f"image_{name}": values for name, values in image.items()},
    )


def read_job(path: Path) -> tuple[dict[str, object], PixelBatch, Rays]:
    """What `write_job` wrote: meta, batch, rays of the image."""
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
        rays, image = (Rays(**{name: file[f"{kind}_{name}"] for name in RAY_PARTS}) for kind in ("ray", "image"))
        batch = PixelBatch(rays, file["rgb"], file["mask"], np.full(len(rays), IMAGE_VIEW, np.int32))
    return meta, batch, image

"""Measure Gaussian splatting: `python benchmarks/bm_gaussians.py --help`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

if __name__ == "__main__":  # run as a file: the packages lie beside benchmarks/, not in it
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data.scenes.load import load_held_out, load_scene
from models.experiment import background
from models.machine import backend, memory
from models.machine.backend import jt
from models.methods.conf import ExperimentConfig, load_config
from models.methods.protocol import Model
from models.methods.registry import build_model
from models.ops.splat_project import camera_numbers, project_ellipsoids
from models.ops.splat_raster import Look, Raster, composite_ellipsoids
from models.ops.splat_shade import shade_splats
from models.results.render import psnr
from models.training.trainer import Trainer, generators

ROOT = Path(__file__).resolve().parent.parent
SIDE, COUNT = 256, 16384  # of the image that is timed beside a peer
REPEATS = 7
REST = 15
SIZE, SPREAD = 0.02, 0.4  # of the Gaussians, as logarithm's mean and deviation
DESCRIPTION = """
raster: one picture of 256x256 of 16,384 Gaussians, forward and backward, by the clock and in processor seconds, with
the memory it takes. --peer "PYTHON benchmarks/peer_splatting.py CHECKOUT" sets the public torch-splatting beside it;
any other command gets the path of an .npz with means, quats, sizes (logarithms), opacities (logits), sh, viewmat, K,
width and height behind it and has to print one line of JSON, {"seconds": ..., "processor_seconds": ..., "bytes": ...},
of forward and backward of the sum of the picture. quality: a conf on a scene, its held-out views and memory at every
--every steps. Prints JSON, a line each.
"""


def splats(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random Gaussians in the unit sphere."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(count, 3))
    means *= 0.8 * rng.random((count, 1)) ** (1 / 3) / np.linalg.norm(means, axis=1, keepdims=True)
    return {
        "means": means,
        "quats": rng.normal(size=(count, 4)),
        "sizes": np.log(SIZE) + SPREAD * rng.normal(size=(count, 3)),
        "opacities": rng.normal(size=(count, 1)),
        "sh": np.concatenate([rng.normal(size=(count, 1, 3)), 0.1 * rng.normal(size=(count, REST, 3))], axis=1),
    }


def camera(side: int) -> tuple[np.ndarray, np.ndarray]:
    """Pose [4, 4] and intrinsics [3, 3] of a camera that looks at the sphere."""
    pose = np.eye(4)
    pose[2, 3] = 3.0
    return pose, np.array([[1.4 * side, 0, side / 2], [0, 1.4 * side, side / 2], [0, 0, 1.0]])


def raster(count: int, side: int) -> dict[str, float]:
    """Print median times of forward and backward passes, and the memory of one."""
    values = splats(count)
    inputs = [jt.array(values[name].astype(np.float32)) for name in ("means", "quats", "sizes", "opacities")]
    dc, rest = (jt.array(part.astype(np.float32)) for part in (values["sh"][:, 0], values["sh"][:, 1:]))
    numbers = jt.array(camera_numbers(*camera(side)))
    times = []

    def once() -> None:
        start = time.perf_counter(), time.process_time()
        seen = project_ellipsoids(*inputs[:3], numbers, side, side)
        colors = shade_splats(inputs[0], dc, rest, numbers, 3)
        look = Look(colors, inputs[3].sigmoid(), jt.zeros((3,)), jt.zeros((count, 2)))
        picture = composite_ellipsoids(seen, look, Raster(side, side))
        jt.sync([picture, *jt.grad(picture.sum(), [*inputs, dc, rest])])
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))

    once()
    grown = memory.growth(once)
    for _ in range(REPEATS):
        once()
    clock, processor = (median(column) for column in zip(*times[2:], strict=True))
    return {"seconds": clock, "processor_seconds": processor, "bytes": grown}


def peer(command: str, count: int, side: int) -> dict[str, float]:
    """The measurements of another rasteriser on the same image."""
    pose, intrinsics = camera(side)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.npz"
        np.savez(path, **splats(count), viewmat=pose, K=intrinsics, width=side, height=side)
        done = subprocess.run([*command.split(), str(path)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def quality(conf: ExperimentConfig, every: int) -> None:
    """Train, and print metrics of the held-out views during the training."""
    train = conf.train
    scene = load_scene(conf.dataset, background(conf))
    test = load_held_out(conf.dataset, scene, background(conf))
    initial, views, jitter = generators(train.seed)
    model = build_model(conf.model, train, initial)
    trainer = Trainer(model, model.sampler(scene, train.batch_size, views), train, jitter)
    spent = 0.0
    while trainer.finished_steps < train.end_iter:
        start = time.process_time()
        trainer.step()
        trainer.settle()
        spent += time.process_time() - start
        if trainer.finished_steps % every == 0 or trainer.finished_steps == train.end_iter:
            found = {"step": trainer.finished_steps, "processor_seconds": round(spent, 1)}
            found |= {"pool_bytes": memory.pool_bytes(), "resident_bytes": backend.resident_bytes()}
            found |= {name: len(value) for name, value in list(model.buffers().items())[:1]}
            print(json.dumps(found | _figures(model, trainer, test)), flush=True)


def _figures(model: Model, trainer: Trainer, test: object) -> dict[str, float]:
    """The mean PSNR of the held-out views, over whole images and inside their masks."""
    if test is None:
        return {}
    whole, inside = [], []
    for view in range(test.n_views):
        rays, shape = test.rays(view)
        shown, photograph = model.view(rays, trainer.context).rgb.reshape(*shape, 3), test.rgb_image(view)
        whole.append(psnr(shown, photograph))
        if test.masks is not None:
            mask = test.mask_image(view) > 0.5
            inside.append(psnr(shown[mask], photograph[mask]))
    found = {"psnr": round(float(np.mean(whole)), 2)}
    return found | ({"psnr_mask": round(float(np.mean(inside)), 2)} if inside else {})


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    parser.add_argument("what", choices=("raster", "quality"))
    parser.add_argument("--peer", default="", help="raster: the command of another rasteriser")
    parser.add_argument("--conf", type=Path, default=ROOT / "confs/gaussians.conf", help="quality: the conf")
    parser.add_argument("--data", default="", help="quality: dataset.data_dir")
    parser.add_argument("--every", type=int, default=500, help="quality: steps between figures")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="quality: as of exp_runner.py")
    given = parser.parse_args()
    if given.what == "quality":
        quality(load_config(given.conf, "case", [f"dataset.data_dir={given.data}", *given.set]), given.every)
        return 0
    ours = raster(COUNT, SIDE) | {"threads": int(os.environ.get("OMP_NUM_THREADS", "0"))}
    print(json.dumps({"ours": ours}))
    if given.peer:
        theirs = peer(given.peer, COUNT, SIDE)
        ratios = {key: theirs[key] / ours[key] for key in ("seconds", "processor_seconds", "bytes")}
        print(json.dumps({"peer": theirs, "peer_over_ours": ratios}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Measure mesh extraction: `python -m benchmarks.bm_mesh [--resolution N] [--conf FILE] [--dense] [-- FLAGS]`.

Without a conf, the field is a sphere of radius 0.7; with a conf, its freshly initialised model, whose networks have the
released sizes in confs/wmask.conf; with FLAGS of exp_runner.py, the newest checkpoint of their experiment. The time of
the dense grid is extrapolated from some of its chunks, or with --dense measured, and its mesh compared.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.dense_extraction import marching_cubes, sample_grid
from data.io.streams import say
from models.commands.arguments import parse_arguments
from models.commands.conf import read_conf
from models.commands.shared import choose_device, open_trained, show
from models.evaluation.mesh_distance import point_to_mesh
from models.methods.protocol import LevelSet
from models.surface import clean, sparse

LOW, HIGH = np.full(3, -1.01), np.full(3, 1.01)
CHUNK = 2**16
CHUNKS = 6  # of the dense grid, where it is estimated
COMPARED = 100_000  # vertices of each mesh


def sphere(points: np.ndarray) -> np.ndarray:
    """The signed distance of a sphere at points [P, 3], [P, 1]."""
    return np.linalg.norm(points - np.float32([0.1, 0.05, -0.02]), axis=1)[:, None] - np.float32(0.7)


def field_of(conf: Path | None) -> SimpleNamespace:
    """The field to extract, with its level."""
    if conf is None:
        return SimpleNamespace(outward=sphere, threshold=0.0, quantity="a distance", bounded=True, evened=None)
    from models.machine import backend

    backend.select("cpu", 0)
    from models.methods.conf import load_config
    from models.methods.registry import build_model

    loaded = load_config(conf, "none")
    return build_model(loaded.model, loaded.train, np.random.default_rng(0)).level_set


def field_of_experiment(flags: list[str]) -> LevelSet:
    """The field of a trained model, by the flags of exp_runner.py."""
    arguments = parse_arguments([*flags, "--mode", "validate_mesh"])
    conf = read_conf(arguments)
    choose_device(arguments, conf)
    experiment, found = open_trained(arguments, conf), []
    show(experiment, lambda snapshot: found.append(snapshot.model.level_set))
    return found[0]


def main() -> None:
    """Measure an extraction and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resolution", type=int, default=512)
    parser.add_argument("--conf", type=Path)
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("flags", nargs="*")
    values = parser.parse_args()
    field = field_of_experiment(values.flags) if values.flags else field_of(values.conf)
    count = values.resolution
    begin = time.perf_counter()
    found = sparse.extract(field, LOW, HIGH, count, field.threshold, CHUNK)
    seconds = time.perf_counter() - begin
    say(
        f"{count}^3: {found.share:.2%} of the dense queries, {found.blocks} blocks, {seconds:.1f} s, "
        f"{len(found.mesh.faces)} triangles, watertight: {clean.is_watertight(found.mesh)}; {found.rule}"
    )
    say(f"memory at its highest: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    if values.dense:
        begin = time.perf_counter()
        mesh = marching_cubes(sample_grid(field.outward, LOW, HIGH, count, CHUNK), field.threshold, LOW, HIGH)
        dense, voxel = time.perf_counter() - begin, 2.02 / (count - 1)
        pairs = ((mesh, found.mesh), (found.mesh, mesh))
        apart = max(point_to_mesh(_some(a.vertices), b).max() for a, b in pairs) / voxel
        pieces = [clean.pieces(each)[0] for each in (mesh, found.mesh)]
        say(f"dense: {dense:.1f} s; Hausdorff distance {apart:.2g} voxels; pieces {pieces[0]} and {pieces[1]}")
    else:
        points = np.random.default_rng(0).uniform(LOW, HIGH, (CHUNK, 3)).astype(np.float32)
        field.outward(points)
        begin = time.perf_counter()
        for _ in range(CHUNKS):
            field.outward(points)
        dense = (time.perf_counter() - begin) / (CHUNKS * CHUNK) * count**3
        say(f"dense grid, estimated from {CHUNKS} chunks: {dense:.0f} s")
    say(f"dense by sparse time: {dense / seconds:.1f}")


def _some(vertices: np.ndarray) -> np.ndarray:
    """COMPARED of the vertices, or all if there are fewer."""
    return vertices[np.random.default_rng(0).permutation(len(vertices))[:COMPARED]]


if __name__ == "__main__":
    main()

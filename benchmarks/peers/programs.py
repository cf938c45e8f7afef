"""How each program is started on the files of `benchmarks.peers.files`, and where its result is.

Their versions: OpenMVS 2 (https://github.com/cdcseacave/openMVS/wiki/Usage), MVE
(https://github.com/simonfuhrmann/mve/wiki/MVE-Users-Guide), pixelmap-multiview-python 0.1.1. The photographs are small,
so none of them reduces their size. Their other settings are the defaults.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import trimesh

from benchmarks.peers import files
from benchmarks.quality.surfaces import read_points
from benchmarks.shapes import ROOT
from data.errors import UserError
from models.evaluation.mesh_distance import read_mesh

OPENMVS = ("InterfaceCOLMAP", "DensifyPointCloud", "ReconstructMesh", "RefineMesh")
MVE = ("makescene", "dmrecon", "scene2pset", "fssrecon", "meshclean")
LEAST_CONFIDENCE = 10  # of vertices that meshclean keeps, as the guide of MVE has it
LEAST_CAMERAS = 2  # that determine a scale
RESULT = "result.npz"
CASE = "peers"  # for confs whose paths hold it
PROBE = "import importlib.util as u, sys; sys.exit(u.find_spec('pixelmap_multiview') is None)"
DRIVER = Path(__file__).with_name("pixelmap_driver.py")


@dataclass(frozen=True, eq=False)
class Result:
    """A reconstruction in the unit-sphere frame."""

    mesh: trimesh.Trimesh
    cloud: np.ndarray | None = None  # [C, 3], the points that the mesh was made from
    note: str = ""


@dataclass(frozen=True)
class Program:
    """A reconstruction as commands, which run one after the other in a folder of their own."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    read: Callable[[Path], Result]  # from that folder, after the last command; raises UserError without a result


def ours(conf: Path, settings: Sequence[str], task: Path, folder: Path) -> Program:
    """This program: a training and its mesh."""
    keys = (*settings, f"dataset.data_dir={task / files.SCENE}", f"general.base_exp_dir={folder / 'exp'}")
    words = ("--conf", str(conf), "--case", CASE, *(word for key in keys for word in ("--set", key)))
    run = (sys.executable, str(ROOT / "exp_runner.py"), "--mode")
    mesh = ("validate_mesh", *words, "--frame", "unit", "--colour", "none", "--output", str(folder / "mesh.ply"))
    return Program("ours", ((*run, "train", *words), (*run, *mesh)), _read_ours)


def _read_ours(folder: Path) -> Result:
    return Result(read_mesh(folder / "mesh.ply"))


def openmvs(programs: Path, task: Path, folder: Path, threads: int) -> Program:
    """OpenMVS with the given cameras; raises UserError if a program is missing."""
    convert, densify, reconstruct, refine = require_programs("--openmvs", programs, OPENMVS)
    limit = ("--max-threads", str(threads))
    commands = (
        (convert, "-i", str(task), "-o", str(folder / "scene.mvs"), "--image-folder", files.IMAGES),
        (densify, "scene.mvs", "--resolution-level", "0", *limit),
        (reconstruct, "scene_dense.mvs", "-p", "scene_dense.ply", *limit),
        (
            *(refine, "scene_dense.mvs", "-m", "scene_dense_mesh.ply", "-o", "scene_dense_mesh_refine.mvs"),
            *limit,
        ),
    )
    return Program("OpenMVS", commands, _read_openmvs)


def _read_openmvs(folder: Path) -> Result:
    return Result(read_mesh(folder / "scene_dense_mesh_refine.ply"), read_points(folder / "scene_dense.ply"))


def mve(programs: Path, task: Path) -> Program:
    """MVE with the given cameras; raises UserError if a program is missing."""
    make, dense, points, surface, clean = require_programs("--mve", programs, MVE)
    commands = (
        (make, str(task / files.NVM), "scene"),
        (dense, "-s0", "scene"),
        (points, "-F0", "scene", "points.ply"),
        (surface, "points.ply", "surface.ply"),
        (clean, f"-t{LEAST_CONFIDENCE}", "surface.ply", "mesh.ply"),
    )
    return Program("MVE", commands, _read_mve)


def _read_mve(folder: Path) -> Result:
    return Result(read_mesh(folder / "mesh.ply"), read_points(folder / "points.ply"))


def pixelmap(python: Path, quality: str, task: Path, c2w: np.ndarray) -> Program:
    """pixelmap, which finds the cameras itself; its result is moved onto the given ones, `c2w` [V, 4, 4].

    Raises UserError if `python` does not exist, or cannot import the package.
    """
    if shutil.which(python) is None or subprocess.run([python, "-c", PROBE], check=False).returncode != 0:
        raise UserError(
            f"--pixelmap {python}: is no Python interpreter with pixelmap; give one after `pip install "
            "pixelmap-multiview-python==0.1.1`"
        )
    command = (os.path.abspath(python), str(DRIVER), str(task / files.ARRAYS), RESULT, quality)
    return Program(f"pixelmap ({quality})", (command,), lambda folder: read_pixelmap(folder / RESULT, c2w))


def read_pixelmap(path: Path, c2w: np.ndarray) -> Result:
    """The driver's result, moved so that its cameras lie on those of `c2w` [V, 4, 4]; raises UserError without any."""
    with np.load(path) as file:
        vertices, triangles, poses = (file[name] for name in ("vertices", "triangles", "poses"))
    used = np.isfinite(poses).all(axis=(1, 2))
    if used.sum() < LEAST_CAMERAS or len(triangles) == 0:
        raise UserError(f"{path}: has {used.sum()} cameras and {len(triangles)} triangles, too few to be measured")
    centres = -np.einsum("vji,vj->vi", poses[used, :, :3], poses[used, :, 3])
    turn, scale, shift = onto_cameras(poses[used, :, :3], centres, c2w[used])
    error = np.linalg.norm(scale * centres @ turn.T + shift - c2w[used, :3, 3], axis=1)
    mesh = trimesh.Trimesh(scale * vertices @ turn.T + shift, triangles.astype(np.int64), process=False)
    note = f"own cameras: {used.sum()} of {len(poses)}, median error of their centres {np.median(error):.4f} radii"
    return Result(mesh, note=note)


def onto_cameras(rotations: np.ndarray, centres: np.ndarray, c2w: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Rotation [3, 3], scale and translation [3] that move cameras onto others, `c2w` [V, 4, 4].

    The rotation is the mean of those of the cameras, since the centres of few cameras are nearly on a line and do not
    determine it; scale and translation fit the centres best. rotations: [V, 3, 3], world to camera; centres: [V, 3].
    """
    left, _, right = np.linalg.svd((c2w[:, :3, :3] @ rotations).sum(axis=0))
    turn = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
    turned, target = centres @ turn.T, c2w[:, :3, 3]
    spread = turned - turned.mean(axis=0)
    scale = float((spread * (target - target.mean(axis=0))).sum() / (spread**2).sum())
    return turn, scale, target.mean(axis=0) - scale * turned.mean(axis=0)


def require_programs(flag: str, folder: Path, names: Sequence[str]) -> list[str]:
    """The paths of programs in a folder; raises UserError, naming those that are not there."""
    found = {name: shutil.which(name, path=str(folder)) for name in names}
    if missing := [name for name, path in found.items() if path is None]:
        raise UserError(f"{flag} {folder}: has no program {', '.join(missing)}; give the folder that holds them")
    return [os.path.abspath(path) for path in found.values()]


def environment(given: Mapping[str, str], threads: int) -> dict[str, str]:
    """The variables of all programs: the same number of threads, and no GPU."""
    counts = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict(given) | dict.fromkeys(counts, str(threads)) | {"CUDA_VISIBLE_DEVICES": ""}

"""Read and check the references of an evaluation, and transform them to the working frame, before any long
computation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data.errors import UserError
from data.parsed_scene import SparsePoints, training_points
from data.scenes.config import TEST
from data.scenes.readers.points import DtuReference, read_dtu, read_points
from data.scenes.scene import Scene, radius_of
from models.checkpoints.scenes import require_not_trained_on
from models.mesh.clean import THICK, find_ground
from models.mesh.mesh import Surface, frame_of, given_surface, mesh_to_working, working_to
from models.plan import NONE
from models.requests import UNIT, UTM, WORLD, EvaluationRequest
from models.results.experiment import Experiment, held_out_scene, plan_of
from models.results.metric_tables import require_table
from models.results.surface_metrics import (
    FRAME_SAMPLES,
    TAU,
    GroundTruth,
    HeldOutPoints,
    held_out_points,
    moved,
    others,
    read_ground_truth,
    require_in_region,
)

FRAME_WORDS = {
    WORLD: "give it in the world frame of the cameras, or in the unit-sphere frame with --frame unit",
    UNIT: "give it in the unit-sphere frame, or in the world frame of the cameras without --frame unit",
    UTM: "give it in the map grid of reference.json minus its offset, or in the world frame without --frame utm",
}
CONF_WORDS = "give it in the unit-sphere frame, or with --gt in the world frame of the cameras"
DTU_WORDS = "the world frame of the scene must be that of the scan, in millimetres, and --scan the number of the scan"
LARGEST_TAU = 2.0  # radii, the diameter of the region
NOTHING = (
    "{name}: has no test photographs, no SfM points and no ground truth: hold some out "
    "(dataset.test_every = 8 before the training, or dataset.test_dir), or pass --gt FILE or --points FILE"
)


class NoReferencesError(UserError):
    """There is nothing to compare a trained model with."""


@dataclass(frozen=True, eq=False)
class References:
    """The available references; None for missing ones."""

    test: Scene | None  # the test photographs
    truth: GroundTruth | None
    truth_words: str  # advice for ground truth in another frame
    truth_otherwise: np.ndarray  # [4, 4], moves the ground truth to where it is if read in the other frame
    tau: float  # radii
    sfm_points: HeldOutPoints | None
    dtu: DtuReference | None
    surface: Surface | None  # the mesh to evaluate, from a file
    needs_surface: str  # the flag that requires a surface; "" for none
    notes: tuple[str, ...]  # what is not evaluated, and why


def read_references(experiment: Experiment, request: EvaluationRequest) -> References:
    """Raises UserError for unusable references, in another frame, or trained on; NoReferencesError without any."""
    scene = experiment.scene
    tau = _tau(scene, request)
    require_table(request.csv or experiment.folder / "report" / "metrics.csv")
    test = held_out_scene(experiment, TEST)
    if test is not None and experiment.checkpoint is not None:
        require_not_trained_on(experiment.checkpoint, test)
    truth, words = _truth(experiment, request)
    is_world = request.gt is not None and frame_of(request.gt, request.frame) == WORLD
    otherwise = scene.scene_to_world if is_world else np.linalg.inv(scene.scene_to_world)
    dtu = None if request.dtu is None else read_dtu(request.dtu, _scan(scene.name, request.scan))
    if dtu is not None:
        points = moved(dtu.points, np.linalg.inv(scene.scene_to_world))
        require_in_region(points, f"--protocol dtu: scan {dtu.scan}", DTU_WORDS)
    sfm_points, notes = _sfm_points(experiment, request)
    if test is None and truth is None and dtu is None and sfm_points is None:
        raise NoReferencesError(NOTHING.format(name=scene.name))
    file = request.mesh_file
    given = {"--gt": request.gt, "--points": request.points, "--protocol dtu": request.dtu}
    surface = None if file is None else given_surface(scene, file, request.frame, request.up)
    needs = next((flag for flag, value in given.items() if value is not None), "")
    return References(test, truth, words, otherwise, tau, sfm_points, dtu, surface, needs, notes)


def _tau(scene: Scene, request: EvaluationRequest) -> float:
    """The threshold in radii; raises UserError if it exceeds the region of interest."""
    if request.tau is None:
        return TAU
    tau = request.tau / (1.0 if request.frame == UNIT else radius_of(scene))
    if tau >= LARGEST_TAU:
        raise UserError(
            f"--tau {request.tau:g}: is {tau:.3g} radii of the region of interest, which is {LARGEST_TAU:g} "
            "across, so that all distances would be below it; give it in units of --frame"
        )
    return tau


def _truth(experiment: Experiment, request: EvaluationRequest) -> tuple[GroundTruth | None, str]:
    """The ground truth of the flag, else of the conf, and the advice if it is in another frame."""
    named = experiment.conf.dataset.reference_mesh
    if request.gt is not None:
        source, words = f"--gt {request.gt}", FRAME_WORDS[request.frame]
        change = mesh_to_working(experiment.scene, request.gt, request.frame, request.up)
        truth = read_ground_truth(request.gt, source, change)
    elif named:
        source, words = f"dataset.reference_mesh = {named}", CONF_WORDS
        truth = read_ground_truth(named, source, None)
    else:
        return None, ""
    require_in_region(truth.spread(FRAME_SAMPLES, np.random.default_rng(0)), source, words)
    return truth, words


def _sfm_points(experiment: Experiment, request: EvaluationRequest) -> tuple[HeldOutPoints | None, tuple[str, ...]]:
    """The SfM points that were not used in training, and notes on excluded points."""
    scene = experiment.scene
    notes: tuple[str, ...] = ()
    if request.points is not None:
        source, points = f"--points {request.points}", _points(scene, request.points, request.frame)
    elif scene.points is not None:
        source, points = "the SfM points of the scene", scene.points
    else:
        return None, ()
    plan = plan_of(experiment)
    trained_on = training_points(scene.points) if scene.points and plan.points.value != NONE else None
    new = others(points, trained_on)
    if len(new.xyz) < len(points.xyz):
        note = f"{source}: {len(points.xyz) - len(new.xyz)} points were used in training and are not evaluated"
        if len(new.xyz) == 0 and request.points is not None:
            raise UserError(f"{note}; give points that were not used")
        notes = (note,)
    masks = scene.masks if plan.uses_masks else None
    sfm_points = held_out_points(new, source, scene.pinholes, masks)
    if len(sfm_points.xyz) == 0:
        if request.points is not None:
            raise UserError(
                f"{source}: none of its points is on the object, inside the region of interest and the masks; "
                f"{FRAME_WORDS[request.frame]}"
            )
        return None, (*notes, f"{source}: no point is inside the region of interest and the masks")
    if request.is_object:
        left, on_ground = _off_ground(sfm_points, scene)
        return left, (*notes, *on_ground)
    return sfm_points, notes


def _off_ground(points: HeldOutPoints, scene: Scene) -> tuple[HeldOutPoints | None, tuple[str, ...]]:
    """The points off the ground, which is not a part of the mesh, or None, and a note."""
    ground = find_ground(points.xyz, scene.c2w[:, :3, 3])
    if ground is None:
        return points, ()
    is_above = ground.height(points.xyz) > THICK
    below = f"{np.sum(~is_above)} of {len(is_above)} points"
    note = f"{points.source}: {below} are on the ground or below it and not evaluated"
    left = replace(points, xyz=points.xyz[is_above], pixels=points.pixels[is_above]) if is_above.any() else None
    return left, (note,)


def _points(scene: Scene, path: Path, frame: str) -> SparsePoints:
    """The points of --points in the working frame; raises UserError if they are unusable."""
    points = read_points(path)
    if points is None:
        raise UserError(f"--points {path}: contains no points; write the file again")
    xyz = moved(points.xyz, np.linalg.inv(working_to(scene, frame)))
    require_in_region(xyz, f"--points {path}", FRAME_WORDS[frame])
    return replace(points, xyz=xyz)


def _scan(name: str, given: int | None) -> int:
    """The number of a DTU scan: the flag, or the number in the scene name; raises UserError without one."""
    if given is not None:
        return given
    match = re.search(r"scan_?(\d{1,3})(?!\d)", name, re.IGNORECASE)
    if match is None:
        raise UserError(f"--protocol dtu: the scene name {name} contains no scan number such as scan24; pass --scan N")
    return int(match[1])

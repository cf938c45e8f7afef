"""Remove parts of a mesh as --clean and --object say, and account for its triangles, stage by stage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import trimesh

from data.scenes.sparse import well_supported
from models.mesh import clean, pieces
from models.mesh.clean import without_ground
from models.mesh.extraction import EmptySurfaceError
from models.mesh.visibility import Visibility
from models.requests import LARGEST, VIEWS, MeshRequest
from models.results.experiment import Experiment
from models.runs.logger import RunLogger

MOST_OF_IT = 0.5  # fraction of the area; to remove more is worth a warning
PART = 0.1  # of the area of the largest component: without the ground, smaller ones are no parts of the object


class Stages:
    """The number of triangles of a mesh after each stage."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, str]] = []

    def after(self, stage: str, mesh: trimesh.Trimesh) -> trimesh.Trimesh:
        """Add a stage, `mesh` is its result; returns it."""
        self._rows.append((len(mesh.faces), stage))
        return mesh

    def lines(self) -> Iterator[str]:
        """A line for each stage: the triangles after it, and by how many these are more or fewer than before."""
        before = 0
        for count, stage in self._rows:
            yield f"{count:>10} triangles, {count - before:+d}: {stage}"
            before = count


@contextlib.contextmanager
def accounted(log: RunLogger) -> Iterator[Stages]:
    """Stages, which are logged at the end, also after an error."""
    stages = Stages()
    try:
        yield stages
    finally:
        if lines := list(stages.lines()):
            log.info(*lines)


def cleaned(
    experiment: Experiment, request: MeshRequest, mesh: trimesh.Trimesh, stages: Stages, log: RunLogger
) -> trimesh.Trimesh:
    """Apply --clean and --object; raises EmptySurfaceError if nothing is left."""
    if request.clean is None and not request.is_object:
        return mesh
    if request.clean in (VIEWS, LARGEST):
        mesh = _as_seen(experiment, request, mesh, stages)
    small = 1.0 if request.clean == LARGEST else pieces.SMALL_PIECE
    if request.is_object:
        above = without_ground(mesh, experiment.views.c2w[:, :3, 3])
        if above is None:
            log.info("no ground plane with an object on it was found, so none is removed")
        else:
            share = f"{1.0 - above.area / mesh.area:.0%} of the surface is the ground or below it"
            mesh = stages.after(share, above)
        small = max(small, PART)
    points = experiment.views.points
    xyz = pieces.NO_SFM_POINTS if points is None else well_supported(points)
    result = pieces.without_dust(mesh, small, xyz)
    which = "beside the largest" if small == 1.0 else f"below {small:.0%} of the largest one's area"
    mesh = stages.after(f"pieces {which}: {result.words}", result.mesh)
    if request.clean == VIEWS and experiment.scene.masks is None:
        result = pieces.without_bystanders(mesh, experiment.scene.c2w[:, :3, 3], xyz)
        words = f"pieces apart from the object, seen from one side only: {result.words}"
        if result.area > MOST_OF_IT:
            log.warn(f"{words}: --no-clean keeps them")
        mesh = stages.after(words, result.mesh)
    return mesh


def _as_seen(experiment: Experiment, request: MeshRequest, mesh: trimesh.Trimesh, stages: Stages) -> trimesh.Trimesh:
    """The part that cameras see, and that no mask excludes."""
    scene = experiment.scene
    mesh = stages.after("no camera sees them", clean.as_seen(mesh, scene.pinholes, Visibility(mesh)))
    if scene.masks is not None and len(mesh.faces):
        mesh = stages.after("outside the dilated masks", clean.inside_masks(mesh, scene.pinholes, scene.masks))
    if len(mesh.faces) == 0:
        excluded, checked = ("", "cameras") if scene.masks is None else (" or the masks exclude", "masks")
        raise EmptySurfaceError(
            f"No surface: --clean {request.clean} removes all of it, because no camera sees{excluded} it; "
            f"check the {checked} (--mode inspect draws them), or omit --clean"
        )
    return mesh

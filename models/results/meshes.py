"""The surface as a mesh."""

from __future__ import annotations

from pathlib import Path

import trimesh

from models.results.snapshot import Snapshot
from models.surface.export import to_world, write_mesh
from models.surface.extraction import EmptySurfaceError, extract
from models.surface.request import MeshRequest


def extract_mesh(snapshot: Snapshot, request: MeshRequest) -> trimesh.Trimesh:
    """The surface in the working frame; raises EmptySurfaceError where there is none."""
    surface, scene = snapshot.model.level_set, snapshot.experiment.scene
    if surface is None:
        raise EmptySurfaceError("No surface: a model of this kind has none.")
    return extract(
        surface,
        request,
        scene.bbox_min,
        scene.bbox_max,
        snapshot.chunks.points(surface.outward),
        lambda chunks: snapshot.log.progress(chunks, desc="surface", leave=False),
    )


def validate_mesh(snapshot: Snapshot, request: MeshRequest) -> Path:
    """Write the surface, in world coordinates, to meshes/; raises EmptySurfaceError where there is none."""
    return write_world_mesh(snapshot, extract_mesh(snapshot, request))


def write_world_mesh(snapshot: Snapshot, mesh: trimesh.Trimesh) -> Path:
    """A mesh of the working frame to meshes/<step>.ply, in world coordinates."""
    world = to_world(mesh, snapshot.experiment.scene.scene_to_world)
    path = snapshot.experiment.path("meshes", f"{snapshot.step:08d}.ply")
    write_mesh(world, path)
    snapshot.log.info(f"mesh of {len(world.vertices)} vertices and {len(world.faces)} triangles, world frame: {path}")
    return path

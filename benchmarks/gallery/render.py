"""Render photographs of a generated scene by ray casting, and write its scene folder. P points or rays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import trimesh
from scipy.ndimage import map_coordinates

from benchmarks.gallery import scenes
from benchmarks.gallery.scenes import SceneSpec
from benchmarks.gallery.shapes import SHAPES, surface
from data.cameras import image_pixels, pixels_to_rays
from data.demo.make_demo import SCENE_TO_WORLD, albedo
from data.io.files import write_result
from data.parsed_scene import SparsePoints
from data.pixels import to_uint8
from data.rays import PinholeCamera
from data.scenes.readers.neus import write_neus_scene, write_points
from data.scenes.scene import Scene

TRUTH, TRUTH_OBJECT, WITNESS = "truth.ply", "truth_object.ply", "witness.ply"  # WITNESS is written last
SUPERSAMPLES = 2  # per pixel and axis: smooth edges
CHUNK_PIXELS = 1 << 16  # photographed at a time: bounds memory
OFFSET = 5e-3  # radii: a shadow ray begins so far above the surface, and a point is hidden by what is nearer by that
POINTS, POINT_NOISE, POINT_VIEWS = 4000, 1.5e-3, 3  # drawn; radii; photographs that see a point
LATTICE = 32  # cells of the noise before it repeats
OCTAVES = (3.0, 9.0, 27.0)  # cells of the noise per radius: seen from afar and from near
GRIT = (81.0, 200.0)  # and of the finest, down to two pixels of photographs of 1000x1000
NOISE_CONTRAST, HUE = 0.9, 0.35  # differences of brightness, and of single channels beside them
CHECKS = 5.5  # per radius
SUN = np.array([0.45, -0.6, 0.66]) / np.linalg.norm([0.45, -0.6, 0.66])
LAMP = np.array([0.0, 0.0, 0.24])  # of a room
AMBIENT, DIFFUSE, HIGHLIGHT, SHININESS = 0.5, 0.55, 0.7, 60.0
BACKDROPS = {"black": 0.0, "grey": 0.55, "table": 0.6}  # grey level of the background
TABLE, TABLE_CELLS = 1.6, 200  # half side, radii; of its mesh, per axis


def texture(spec: SceneSpec) -> Callable[[np.ndarray], np.ndarray]:
    """The solid texture of a scene: points [P, 3] -> colours [P, 3] in [0, 1]."""
    random, color = spec.random(1), np.array(spec.color)
    scales = OCTAVES + GRIT if spec.texture == "grit" else OCTAVES
    shift = random.uniform(-1.0, 1.0, 3)
    lattices = random.uniform(-0.5, 0.5, (len(scales), 3, LATTICE, LATTICE, LATTICE))
    lattices = HUE * lattices + lattices[:, :1]

    def grain(points: np.ndarray) -> np.ndarray:
        octaves = [
            np.stack([map_coordinates(one, (points * scale).T, order=1, mode="grid-wrap") for one in lattice], axis=1)
            for scale, lattice in zip(scales, lattices, strict=True)
        ]
        return sum(octaves) / np.sqrt(len(octaves))

    def colored(points: np.ndarray) -> np.ndarray:
        if spec.texture == "plain":
            return np.broadcast_to(color, points.shape)
        if spec.texture == "marble":
            return albedo(points + 0.2 * shift)
        if spec.texture == "checker":
            parity = np.floor(CHECKS * (points + shift)).sum(axis=1) % 2
            return np.clip(color * (0.55 + 0.7 * parity[:, None]) + 0.25 * grain(points), 0.0, 1.0)
        return np.clip(color + NOISE_CONTRAST * grain(points), 0.02, 1.0)

    return colored


class PhotoSet:
    """The object of a scene with its environment."""

    def __init__(self, spec: SceneSpec) -> None:
        self.spec, self.sdf, self.texture = spec, SHAPES[spec.shape](spec.random(0)), texture(spec)
        self.object = surface(self.sdf, spec.cells)
        self.mesh = self.object  # what is photographed
        if spec.ground is not None:  # no photograph shows the faces below the ground
            above = (self.object.vertices[:, 2] > spec.ground)[self.object.faces].any(axis=1)
            self.object = trimesh.Trimesh(self.object.vertices, self.object.faces[above], process=False)
            self.object.remove_unreferenced_vertices()
            self.mesh = trimesh.util.concatenate([self.object, _table(spec.ground)])

    def visible(self) -> trimesh.Trimesh:
        """The object and the part of the ground that is inside the unit sphere and not below the object."""
        inside = (np.linalg.norm(self.mesh.vertices, axis=1) < 1.0)[self.mesh.faces].all(axis=1)
        inside[len(self.object.faces) :] &= self.sdf(self.mesh.triangles_center[len(self.object.faces) :]) > 0.0
        return trimesh.Trimesh(self.mesh.vertices, self.mesh.faces[inside], process=False)

    def photograph(self, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Radiance [H, W, 3], before exposure, and the coverage of the object [H, W], from a pose [4, 4]."""
        width, height = self.spec.size
        pixels = image_pixels(width, height).reshape(-1, 2)
        steps = (np.arange(SUPERSAMPLES) + 0.5) / SUPERSAMPLES - 0.5
        offsets = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
        light, share = np.zeros((len(pixels), 3)), np.zeros(len(pixels))
        for start in range(0, len(pixels), CHUNK_PIXELS):
            part = slice(start, start + CHUNK_PIXELS)
            for offset in offsets:
                seen, is_object = self._seen(*pixels_to_rays(pixels[part] + offset, self.spec.intrinsics[0], pose))
                light[part] += seen / len(offsets)
                share[part] += is_object / len(offsets)
        return light.reshape(height, width, 3), share.reshape(height, width)

    def first(self, origins: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distance [P] along rays [P, 3] to the first face, and its index [P]; infinite and -1 without any."""
        face = np.asarray(self.mesh.ray.intersects_first(origins, directions))
        hit, depth = np.flatnonzero(face >= 0), np.full(len(origins), np.inf)
        normal, corner = self.mesh.face_normals[face[hit]], self.mesh.triangles[face[hit], 0]
        depth[hit] = np.sum(normal * (corner - origins[hit]), axis=1) / np.sum(normal * directions[hit], axis=1)
        return depth, face

    def _seen(self, origins: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Radiance [P, 3] along rays [P, 3], and whether they hit the object [P]."""
        depth, face = self.first(origins, directions)
        light, hit = np.full((len(origins), 3), BACKDROPS[self.spec.backdrop]), np.flatnonzero(face >= 0)
        if len(hit):
            points = origins[hit] + depth[hit, None] * directions[hit]
            light[hit] = self._lit(points, face[hit], directions[hit])
        return light, (face >= 0) & (face < len(self.object.faces))

    def _lit(self, points: np.ndarray, face: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Radiance [P, 3] of points [P, 3] on faces [P]: Lambert, shadows on the ground, Blinn-Phong highlights."""
        weights = trimesh.triangles.points_to_barycentric(self.mesh.triangles[face], points)
        normals = _unit(np.sum(weights[..., None] * self.mesh.vertex_normals[self.mesh.faces[face]], axis=1))
        towards = _unit(LAMP - points) if self.spec.rig == "inside" else np.broadcast_to(SUN, points.shape)
        lit = np.ones(len(points))
        if self.spec.ground is not None:
            lit -= self.mesh.ray.intersects_any(points + OFFSET * normals, towards)
        lambert = np.maximum(np.sum(normals * towards, axis=1), 0.0) * lit
        highlight = np.maximum(np.sum(normals * _unit(towards - directions), axis=1), 0.0) ** SHININESS
        diffuse = self.texture(points) * (AMBIENT + DIFFUSE * lambert)[:, None]
        return diffuse + (self.spec.gloss * HIGHLIGHT * lit * highlight)[:, None]


def photographs(stage: PhotoSet) -> Scene:
    """The scene for training: photographs, masks, cameras as written to the file, SfM points."""
    spec = stage.spec
    random, images, masks = spec.random(8), [], []
    for pose, exposure in zip(scenes.poses(spec), scenes.exposures(spec), strict=True):
        light, share = stage.photograph(pose)
        images.append(to_uint8(exposure * light + random.normal(0.0, spec.noise, light.shape)))
        masks.append(np.where(share > 0.5, 255, 0).astype(np.uint8))
    return Scene(
        name=spec.name,
        image_names=tuple(f"{view:03d}.png" for view in range(len(images))),
        images=tuple(images),
        masks=tuple(masks) if spec.has_masks else None,
        intrinsics=spec.intrinsics,
        c2w=scenes.written_poses(spec),
        scene_to_world=SCENE_TO_WORLD,
        bbox_min=np.full(3, -1.01),
        bbox_max=np.full(3, 1.01),
        points=seen_points(stage, stage.visible(), 9) if spec.has_points else None,
    )


def seen_points(stage: PhotoSet, mesh: trimesh.Trimesh, part: int) -> SparsePoints:
    """Points on `mesh` that are visible in POINT_VIEWS photographs, with the noise of structure from motion."""
    spec, random = stage.spec, stage.spec.random(part)
    points, _ = trimesh.sample.sample_surface(mesh, POINTS, seed=int(random.integers(1 << 31)))
    views = np.zeros(len(points), int)
    for camera in [
        PinholeCamera(*place, *spec.size) for place in zip(spec.intrinsics, scenes.poses(spec), strict=True)
    ]:
        away = points - camera.center
        distance = np.linalg.norm(away, axis=1)
        depth, _ = stage.first(np.broadcast_to(camera.center, points.shape), away / distance[:, None])
        views += camera.shows(*camera.project(points)) & (depth > distance - OFFSET)
    kept = views >= POINT_VIEWS
    noisy = points[kept] + random.normal(0.0, POINT_NOISE, (kept.sum(), 3))
    return SparsePoints(noisy, views[kept], np.full(kept.sum(), np.nan), np.full((kept.sum(), 3), 128, np.uint8))


def write_scene(spec: SceneSpec, folder: Path) -> None:
    """Write photographs, cameras, ground truth and held-out SfM points to `folder`, unless they exist.

    Ground truth and held-out points are in the world frame of the camera file. Raises UserError if the disk is full.
    """
    if (folder / WITNESS).is_file():
        return
    stage = PhotoSet(spec)
    folder.mkdir(parents=True, exist_ok=True)
    write_neus_scene(folder, photographs(stage))
    visible = stage.visible()
    for name, mesh in ((TRUTH, visible), (TRUTH_OBJECT, stage.object)):
        write_result(folder / name, mesh.copy().apply_transform(SCENE_TO_WORLD).export(file_type="ply"))
    witness = seen_points(stage, stage.object if spec.has_masks else visible, 10)
    write_points(folder / WITNESS, witness, SCENE_TO_WORLD)


def _table(height: float) -> trimesh.Trimesh:
    """A square of triangles at a height, fine enough for distances to its vertices."""
    axis = np.linspace(-TABLE, TABLE, TABLE_CELLS)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    index = np.arange(x.size).reshape(x.shape)
    a, b, c, d = (part.ravel() for part in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    faces = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    return trimesh.Trimesh(np.stack([x, y, np.full_like(x, height)], axis=-1).reshape(-1, 3), faces, process=False)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors [P, 3] divided by their lengths."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

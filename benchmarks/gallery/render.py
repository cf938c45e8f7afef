"""Render photographs of a generated scene by ray casting, and write its scene folder."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path

import numpy as np
import trimesh

from benchmarks.gallery import scenes
from benchmarks.gallery.appearance import Backdrop, reflected, shaded, texture, towards_light
from benchmarks.gallery.scenes import NGP, SceneSpec
from benchmarks.gallery.shapes import SHAPES, surface
from data.cameras import image_pixels, pixels_to_rays
from data.demo.make_demo import SCENE_TO_WORLD, WORLD_SCALE
from data.io.files import write_result
from data.io.images import to_uint8, write_image
from data.parsed_scene import SparsePoints
from data.readers.poses import OPENGL_TO_OPENCV
from data.scenes.scene import Scene
from data.writers.neus import write_neus_scene, write_points
from models.surface.visibility import Camera, cameras, project

SUPERSAMPLES = 2  # per pixel and axis: smooth edges
CHUNK_PIXELS = 1 << 16  # photographed at a time: bounds memory
SHADOW_OFFSET = 2e-3  # a shadow ray begins so far above the surface
HIDDEN_FROM = 5e-3  # a point is hidden by what is nearer to the camera by that much
TRUTH, TRUTH_OBJECT, WITNESS = "truth.ply", "truth_object.ply", "witness.ply"
DONE = "scene.json"  # written last
GROUND_CELLS = 120  # per axis, of the ground's part of the ground truth
POINTS, POINT_NOISE, POINT_VIEWS = 4000, 1.5e-3, 3  # drawn; radii; photographs that see a point


class PhotoSet:
    """The object of a scene with its environment."""

    def __init__(self, spec: SceneSpec) -> None:
        self.spec = spec
        self.sdf = SHAPES[spec.shape](spec.random(0))
        self.object = _above(surface(self.sdf, spec.cells), spec.ground)
        self._texture, self._backdrop = texture(spec), Backdrop(spec)

    @cached_property
    def visible(self) -> trimesh.Trimesh:
        """The object and the part of the ground that is inside the unit sphere and not below the object."""
        if self.spec.ground is None:
            return self.object
        axis = np.linspace(-1.0, 1.0, GROUND_CELLS)
        x, y = np.meshgrid(axis, axis, indexing="ij")
        vertices = np.stack([x, y, np.full_like(x, self.spec.ground)], axis=-1).reshape(-1, 3)
        index = np.arange(len(vertices)).reshape(x.shape)
        a, b, c, d = (part.ravel() for part in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
        faces = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
        is_free = (np.linalg.norm(vertices, axis=1) < 1.0) & (self.sdf(vertices) > 0.0)
        ground = trimesh.Trimesh(vertices, faces[is_free[faces].all(axis=1)], process=False)
        return trimesh.util.concatenate([self.object, ground])

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
                rays = pixels_to_rays(pixels[part] + offset, self.spec.intrinsics, pose)
                seen, is_object = self._seen(*rays)
                light[part] += seen / len(offsets)
                share[part] += is_object / len(offsets)
        return light.reshape(height, width, 3), share.reshape(height, width)

    def first(self, origins: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distance [P] to the first face of the object along rays [P, 3], and its index [P]; infinite and -1 if there
        is none.
        """
        face = np.asarray(self.object.ray.intersects_first(origins, directions))
        hit, depth = np.flatnonzero(face >= 0), np.full(len(origins), np.inf)
        corners = self.object.triangles[face[hit]]
        normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        depth[hit] = np.sum(normal * (corners[:, 0] - origins[hit]), axis=1) / np.sum(normal * directions[hit], axis=1)
        return depth, face

    def sees(self, camera: Camera, points: np.ndarray) -> np.ndarray:
        """Whether a camera sees points [P, 3], unoccluded by the object: bool [P]."""
        away = points - camera.center
        distance = np.linalg.norm(away, axis=1)
        depth, _ = self.first(np.broadcast_to(camera.center, points.shape), away / distance[:, None])
        return camera.shows(*project(points, camera)) & (depth > distance - HIDDEN_FROM)

    def _seen(self, origins: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Radiance [P, 3] along rays [P, 3], and whether they hit the object [P]."""
        depth, face = self.first(origins, directions)
        ground = self._backdrop.ground_depth(origins, directions)
        is_object, is_ground = depth < ground, ground < depth
        is_sky = ~(is_object | is_ground)
        light = np.zeros((len(origins), 3))
        light[is_sky] = self._backdrop.colors(origins[is_sky], directions[is_sky])
        points = origins[is_ground] + ground[is_ground, None] * directions[is_ground]
        light[is_ground] = self._ground_light(points, ground[is_ground])
        points = origins[is_object] + depth[is_object, None] * directions[is_object]
        light[is_object] = self._object_light(points, face[is_object], directions[is_object])
        return light, is_object

    def _object_light(self, points: np.ndarray, face: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Radiance [P, 3] of points [P, 3] on the faces `face` [P], seen along `directions` [P, 3]."""
        if not len(points):
            return np.zeros((0, 3))
        weights = trimesh.triangles.points_to_barycentric(self.object.triangles[face], points)
        normals = np.sum(weights[..., None] * self.object.vertex_normals[self.object.faces[face]], axis=1)
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-9)
        towards, lit = towards_light(self.spec, points), self._lit(points, normals)
        light = shaded(self._texture(points), normals, towards, lit)
        if self.spec.gloss:
            light = light + self.spec.gloss * reflected(self._backdrop, normals, towards, directions, lit)
        return light

    def _ground_light(self, points: np.ndarray, distances: np.ndarray) -> np.ndarray:
        """Radiance [P, 3] of ground points [P, 3] at `distances` [P] from the camera."""
        if not len(points):
            return np.zeros((0, 3))
        up = np.broadcast_to(np.array([0.0, 0.0, 1.0]), points.shape)
        colors = self._backdrop.ground_colors(points, distances)
        return shaded(colors, up, towards_light(self.spec, points), self._lit(points, up))

    def _lit(self, points: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """1 if points [P, 3] are lit, 0 in the shadow of the object; scenes without ground have no shadows."""
        if self.spec.ground is None:
            return np.ones(len(points))
        towards = towards_light(self.spec, points)
        return 1.0 - self.object.ray.intersects_any(points + SHADOW_OFFSET * normals, towards)


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
        intrinsics=np.repeat(spec.intrinsics[None], len(images), axis=0),
        c2w=scenes.written_poses(spec),
        scene_to_world=SCENE_TO_WORLD,
        bbox_min=np.full(3, -1.01),
        bbox_max=np.full(3, 1.01),
        points=seen_points(stage, stage.visible, 9) if spec.has_points else None,
    )


def seen_points(stage: PhotoSet, mesh: trimesh.Trimesh, part: int) -> SparsePoints:
    """Points on `mesh` that are visible in POINT_VIEWS photographs, with the noise of structure from motion."""
    spec, random = stage.spec, stage.spec.random(part)
    points, _ = trimesh.sample.sample_surface(mesh, POINTS, seed=int(random.integers(1 << 31)))
    poses, views = scenes.poses(spec), np.zeros(len(points), int)
    for camera in cameras(np.repeat(spec.intrinsics[None], len(poses), axis=0), poses, [spec.size] * len(poses)):
        views += stage.sees(camera, points)
    kept = views >= POINT_VIEWS
    noisy = points[kept] + random.normal(0.0, POINT_NOISE, (kept.sum(), 3))
    grey = np.full((kept.sum(), 3), 128, np.uint8)
    return SparsePoints(noisy, views[kept], np.full(kept.sum(), np.nan), grey)


def write_scene(spec: SceneSpec, folder: Path) -> None:
    """Write photographs, cameras, ground truth and held-out SfM points to `folder`, unless they exist.

    Ground truth and held-out points are in the world frame of the camera file. Raises UserError if the disk is full.
    """
    described = json.dumps({"scene": repr(spec), "generator": _generator()}) + "\n"
    if (folder / DONE).is_file() and (folder / DONE).read_text(encoding="utf-8") == described:
        return
    stage = PhotoSet(spec)
    scene = photographs(stage)
    folder.mkdir(parents=True, exist_ok=True)
    if spec.format == NGP:
        _write_transforms(folder, scene)
    else:
        write_neus_scene(folder, scene)
    for name, mesh in ((TRUTH, stage.visible), (TRUTH_OBJECT, stage.object)):
        write_result(folder / name, mesh.copy().apply_transform(SCENE_TO_WORLD).export(file_type="ply"))
    witness = stage.object if spec.has_masks else stage.visible
    write_points(folder / WITNESS, seen_points(stage, witness, 10), SCENE_TO_WORLD)
    write_result(folder / DONE, described.encode())


def _generator() -> str:
    """A hash of the modules that determine the pixels: folders of another version are written again."""
    names = ("appearance.py", "render.py", "scenes.py", "shapes.py")
    return hashlib.sha256(b"".join((Path(__file__).parent / name).read_bytes() for name in names)).hexdigest()


def _write_transforms(folder: Path, scene: Scene) -> None:
    """Write transforms.json and images/ in the format of instant-ngp."""
    (folder / "images").mkdir(exist_ok=True)
    frames = []
    for name, image, pose in zip(scene.image_names, scene.images, scene.c2w, strict=True):
        write_image(folder / "images" / name, image)
        world = SCENE_TO_WORLD @ pose
        world[:3, :3] /= WORLD_SCALE
        frames.append({"file_path": f"images/{name}", "transform_matrix": (world @ OPENGL_TO_OPENCV).tolist()})
    width, height = scene.size(0)
    focal = float(scene.intrinsics[0, 0, 0])
    lens = {"fl_x": focal, "fl_y": focal, "cx": width / 2, "cy": height / 2, "w": width, "h": height}
    write_result(folder / "transforms.json", (json.dumps(lens | {"frames": frames}, indent=1) + "\n").encode())


def _above(mesh: trimesh.Trimesh, ground: float | None) -> trimesh.Trimesh:
    """The mesh without the faces below the ground, which no photograph shows."""
    if ground is None:
        return mesh
    height = mesh.vertices[:, 2]
    kept = mesh.faces[(height[mesh.faces] > ground).any(axis=1)]
    found = trimesh.Trimesh(mesh.vertices, kept, process=False)
    found.remove_unreferenced_vertices()
    return found

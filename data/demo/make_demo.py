"""Makes the bundled scene: images, masks, cameras and the exact surface of an object given by a formula.

    python -m data.demo.make_demo [--out DIR]

The object is an open jug on a stem: a bowl (concave), a looped handle and a curved spout (thin, 0.09 to 0.2 across),
a stem and a flat foot, rounded where they meet. It is a signed distance function written down below, so the surface
is known exactly. Everything here is deterministic.

Frames: the *working* frame is the one of the formula, the object inside the unit sphere at the origin, z up. The
*world* frame of the camera file is scaled and shifted (`SCENE_TO_WORLD`), so that tests notice a missing transform.
Lengths are working-frame units. Cameras look along +z, x right, y down; pixel (0, 0) is the centre of the first
pixel. P is a number of points; every array is float64 unless said otherwise.

Layout (the one of the published NeuS): `image/NNN.png`, `mask/NNN.png`, `cameras_sphere.npz` with `world_mat_i` and
`scale_mat_i`; `test/` holds the held-out views in the same layout; `ground_truth.ply` is in the working frame.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import mcubes
import numpy as np
import trimesh

from data.cameras import affine
from data.io.bars import progress
from data.scenes.frustum import sphere_points
from data.scenes.readers.neus import write_neus_scene
from data.scenes.scene import Scene

TRAIN_VIEWS = 44
IMAGE_SIZE = 200  # pixels, width and height
CAMERA_DISTANCE = 3.0  # from the origin: outside the unit sphere, as the published code assumes
FOCAL_PIXELS = 0.5 * IMAGE_SIZE * np.sqrt(CAMERA_DISTANCE**2 - 1.0)  # the unit sphere touches the borders of the image
SUBPIXELS = 3  # per pixel and axis: nine rays per pixel for antialiasing
WORLD_SCALE = 2.5
WORLD_CENTER = np.array([4.0, -7.0, 1.5])
SCENE_TO_WORLD = np.diag([WORLD_SCALE, WORLD_SCALE, WORLD_SCALE, 1.0])
SCENE_TO_WORLD[:3, 3] = WORLD_CENTER
TEST_DIRECTIONS = ((1.0, -2.2, 1.1), (-1.6, -1.0, 1.9), (0.6, 2.4, 0.3), (-1.5, 1.4, -0.9))  # between training views

OBJECT_RADIUS = 0.84  # a bounding sphere of the object: rays that miss it are not traced
GRADIENT_STEP = 1e-5  # central differences: error of order 1e-10 in float64
HIT_DISTANCE = 1e-4  # a hundredth of a pixel's footprint
STEP_FACTOR = 0.9  # the gradient of the tapered tube's distance exceeds 1 by up to 3 %
TRACE_STEPS = 160
LIGHT = np.array([0.45, -0.6, 0.66]) / np.linalg.norm([0.45, -0.6, 0.66])
AMBIENT_LIGHT, DIFFUSE_LIGHT = 0.6, 0.5
# Cream, turquoise, deep blue, coral, gold: neighbours differ in brightness as well as in hue.
PALETTE = np.array([[0.98, 0.92, 0.78], [0.10, 0.62, 0.66], [0.14, 0.22, 0.52], [0.93, 0.38, 0.29], [0.97, 0.74, 0.20]])

MESH_RESOLUTION = 104  # keeps ground_truth.ply below 900 kB; its vertices are put on the exact surface afterwards
NEWTON_STEPS = 6
RENDER_CHUNK = 4000  # pixels traced at a time, to limit memory


def smooth_min(a: np.ndarray, b: np.ndarray, width: float) -> np.ndarray:
    """Minimum of two distances with a fillet of size `width` (quadratic polynomial); lies at most width/4 below."""
    overlap = np.maximum(width - np.abs(a - b), 0.0) / width
    return np.minimum(a, b) - 0.25 * width * overlap**2


def capped_cylinder(radial: np.ndarray, height: np.ndarray, radius: float, low: float, high: float) -> np.ndarray:
    """Exact distance to an upright cylinder, given the distance from its axis [P] and the height [P]."""
    side = radial - radius
    cap = np.abs(height - 0.5 * (low + high)) - 0.5 * (high - low)
    outside = np.hypot(np.maximum(side, 0.0), np.maximum(cap, 0.0))
    return outside + np.minimum(np.maximum(side, cap), 0.0)


def arc_tube(
    points: np.ndarray,
    center: tuple[float, float],
    radius: float,
    angles: tuple[float, float],
    thickness: tuple[float, float],
) -> np.ndarray:
    """Distance to a tube along an arc in the xz plane, with round ends.

    `center` (x, z) and `radius` give the circle, `angles` its ends in radians from +x towards +z, `thickness` the
    tube's radius at the two ends, in between linear in the angle (exact where they are equal).
    """
    x, z = points[:, 0] - center[0], points[:, 2] - center[1]
    middle = 0.5 * (angles[0] + angles[1])
    half = 0.5 * (angles[1] - angles[0])
    from_middle = np.arctan2(z * np.cos(middle) - x * np.sin(middle), x * np.cos(middle) + z * np.sin(middle))
    offset = np.clip(from_middle, -half, half)
    nearest_x, nearest_z = radius * np.cos(middle + offset), radius * np.sin(middle + offset)
    distance = np.sqrt((x - nearest_x) ** 2 + points[:, 1] ** 2 + (z - nearest_z) ** 2)
    return distance - (thickness[0] + (thickness[1] - thickness[0]) * 0.5 * (offset / half + 1.0))


def jug_sdf(points: np.ndarray) -> np.ndarray:
    """Signed distance [P] of working-frame points [P, 3] to the jug, negative inside.

    Zero exactly on the surface; elsewhere a bound (fillets make it a little smaller than the distance).
    """
    radial = np.hypot(points[:, 0], points[:, 1])
    height = points[:, 2]
    body = np.hypot(radial, height - 0.12) - 0.46
    spout = arc_tube(points, (0.32, 0.46), 0.42, (-1.75, -0.42), (0.14, 0.055))
    handle = arc_tube(points, (-0.47, 0.13), 0.26, (1.15, 5.10), (0.06, 0.06))
    solid = smooth_min(smooth_min(body, spout, 0.10), handle, 0.08)
    hollow = np.hypot(radial, height - 0.47) - 0.39
    solid = -smooth_min(-solid, hollow, 0.10)  # the intersection with the outside of the hollow
    stem = capped_cylinder(radial, height, 0.09, -0.70, -0.30)
    foot = capped_cylinder(radial, height, 0.32, -0.70, -0.68) - 0.035
    return smooth_min(solid, smooth_min(foot, stem, 0.16), 0.14)


def sdf_normals(points: np.ndarray) -> np.ndarray:
    """Unit gradient [P, 3] of `jug_sdf` at points [P, 3], by central differences: the outward normal."""
    steps = GRADIENT_STEP * np.eye(3)
    gradient = np.stack([jug_sdf(points + step) - jug_sdf(points - step) for step in steps], axis=-1)
    return gradient / np.maximum(np.linalg.norm(gradient, axis=-1, keepdims=True), 1e-12)


def albedo(points: np.ndarray) -> np.ndarray:
    """Albedo [P, 3] in [0, 1] at points [P, 3]: large swirls of the palette with fine ripples.

    A solid texture: it has no seams and varies along every direction of the surface.
    """
    x, y, z = points.T
    warp_x = x + 0.10 * np.sin(6.0 * y + 1.0) + 0.05 * np.sin(11.0 * z)
    warp_y = y + 0.10 * np.sin(6.0 * z + 2.0) + 0.05 * np.sin(11.0 * x)
    warp_z = z + 0.10 * np.sin(6.0 * x + 3.0) + 0.05 * np.sin(11.0 * y)
    swirl = np.sin(8.0 * warp_x) * np.cos(8.0 * warp_y) + np.sin(8.0 * warp_y) * np.cos(8.0 * warp_z)
    swirl += np.sin(8.0 * warp_z) * np.cos(8.0 * warp_x)
    place = (1.2 * swirl + 3.5 * warp_z + 2.0 * warp_x) % len(PALETTE)
    low = place.astype(int) % len(PALETTE)
    blend = place - np.floor(place)
    blend = np.clip((blend - 0.1) / 0.8, 0.0, 1.0)[:, None]
    blend = blend * blend * (3.0 - 2.0 * blend)
    color = (1.0 - blend) * PALETTE[low] + blend * PALETTE[(low + 1) % len(PALETTE)]
    ripple = np.sin(22.0 * warp_x) * np.sin(22.0 * warp_y + 1.0) * np.sin(22.0 * warp_z + 2.0)
    return np.clip(color * (0.91 + 0.14 * ripple)[:, None], 0.0, 1.0)


def sphere_trace(origins: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First hits of rays [P, 3] (unit directions) with the jug: which rays hit [P] bool, and the points [hits, 3].

    Hart, "Sphere tracing", The Visual Computer 12, 1996: steps of the distance bound cannot pass a surface.
    """
    middle = -np.sum(origins * directions, axis=-1)
    gap = np.sum(origins**2, axis=-1) - middle**2
    active = np.flatnonzero(gap < OBJECT_RADIUS**2)
    reach = np.sqrt(np.maximum(OBJECT_RADIUS**2 - gap, 0.0))
    depth, last = middle - reach, middle + reach
    hit = np.zeros(len(origins), dtype=bool)
    for _ in range(TRACE_STEPS):
        distance = jug_sdf(origins[active] + depth[active, None] * directions[active])
        depth[active] += STEP_FACTOR * distance
        hit[active[distance < HIT_DISTANCE]] = True
        active = active[(distance >= HIT_DISTANCE) & (depth[active] < last[active])]
        if len(active) == 0:
            break
    return hit, origins[hit] + depth[hit, None] * directions[hit]


def shade(points: np.ndarray) -> np.ndarray:
    """Colours [P, 3] of surface points: diffuse, one distant light and an ambient term; independent of the view
    direction.
    """
    lambert = np.maximum(sdf_normals(points) @ LIGHT, 0.0)
    return np.clip(albedo(points) * (AMBIENT_LIGHT + DIFFUSE_LIGHT * lambert)[:, None], 0.0, 1.0)


def render_pixels(pixels: np.ndarray, camera_to_scene: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Colours [P, 3] in [0, 1] on black and coverage [P] of pixels [P, 2] (column, row) seen from a pose [4, 4]."""
    offsets = (np.arange(SUBPIXELS) + 0.5) / SUBPIXELS - 0.5
    grid = np.stack(np.meshgrid(offsets, offsets, indexing="xy"), axis=-1).reshape(-1, 2)
    places = (pixels[:, None, :] + grid).reshape(-1, 2)
    x, y = ((places - 0.5 * (IMAGE_SIZE - 1)) / FOCAL_PIXELS).T
    directions = np.stack([x, y, np.ones_like(x)], axis=-1) @ camera_to_scene[:3, :3].T
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    hit, points = sphere_trace(np.broadcast_to(camera_to_scene[:3, 3], directions.shape), directions)
    colors = np.zeros_like(directions)
    colors[hit] = shade(points)
    return colors.reshape(len(pixels), -1, 3).mean(axis=1), hit.reshape(len(pixels), -1).mean(axis=1)


def look_at_center(direction: np.ndarray) -> np.ndarray:
    """Pose [4, 4], camera to working frame, of a camera in `direction` [3] that looks at the origin, z upwards."""
    backward = np.asarray(direction) / np.linalg.norm(direction)
    right = np.cross(np.array([0.0, 0.0, 1.0]), backward)
    right /= np.linalg.norm(right)
    return affine(np.stack([right, np.cross(-backward, right), -backward], axis=-1), CAMERA_DISTANCE * backward)


def write_views(folder: Path, poses: np.ndarray) -> None:
    """Renders and writes image/, mask/ and cameras_sphere.npz of poses [V, 4, 4] into `folder`."""
    intrinsics, shape = np.diag([FOCAL_PIXELS, FOCAL_PIXELS, 1.0]), (IMAGE_SIZE, IMAGE_SIZE)
    intrinsics[:2, 2] = 0.5 * (IMAGE_SIZE - 1)
    rows, columns = np.mgrid[:IMAGE_SIZE, :IMAGE_SIZE]
    pixels = np.stack([columns, rows], axis=-1).reshape(-1, 2)
    images, masks = [], []
    for pose in progress(poses, folder.name):
        parts = [render_pixels(pixels[i : i + RENDER_CHUNK], pose) for i in range(0, len(pixels), RENDER_CHUNK)]
        color, cover = (np.concatenate(part) for part in zip(*parts, strict=True))
        images.append(np.rint(255.0 * color).astype(np.uint8).reshape(*shape, 3))
        masks.append(np.where(cover > 0.5, 255, 0).astype(np.uint8).reshape(shape))
    scene = Scene(
        name=folder.name,
        image_names=("",) * len(poses),
        images=tuple(images),
        masks=tuple(masks),
        intrinsics=np.tile(intrinsics, (len(poses), 1, 1)),
        c2w=poses,
        scene_to_world=SCENE_TO_WORLD,
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
    )
    write_neus_scene(folder, scene)


def ground_truth() -> trimesh.Trimesh:
    """The surface of the jug as triangles in the working frame, oriented outwards; every vertex is on the zero level
    set of `jug_sdf`.
    """
    axis = np.linspace(-OBJECT_RADIUS, OBJECT_RADIUS, MESH_RESOLUTION)
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    values = jug_sdf(points).reshape((MESH_RESOLUTION,) * 3)
    vertices, faces = mcubes.marching_cubes(-values, 0.0)
    vertices = vertices / (MESH_RESOLUTION - 1) * (axis[-1] - axis[0]) + axis[0]
    for _ in range(NEWTON_STEPS):
        vertices = vertices - jug_sdf(vertices)[:, None] * sdf_normals(vertices)
    return trimesh.Trimesh(vertices, faces.astype(np.int32), process=False)


def main() -> None:
    """Writes the whole scene."""
    parser = argparse.ArgumentParser(description="Make the bundled scene: photographs, masks, cameras, exact surface.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent, help="folder to write into")
    out = parser.parse_args().out
    try:
        out.mkdir(parents=True, exist_ok=True)
        ground_truth().export(out / "ground_truth.ply")
        write_views(out, np.stack([look_at_center(direction) for direction in sphere_points(TRAIN_VIEWS)]))
        write_views(out / "test", np.stack([look_at_center(np.array(direction)) for direction in TEST_DIRECTIONS]))
    except OSError as error:
        parser.error(f"--out {out}: cannot be written ({error.strerror}); choose a folder with write permission")


if __name__ == "__main__":
    main()

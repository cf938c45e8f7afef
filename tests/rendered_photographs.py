"""Photographs that are rendered without the code under test, and pictures of noise.

A textured corner (three squares that meet at the origin), a textured room by a lens that spreads angles evenly, a
sphere with a solid texture and a ring of cameras, and two textured walls.
"""

from __future__ import annotations

import cv2
import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation
from synthetic_scene import look_at

from data.io.images import write_image
from data.parsed_scene import Lens, ParsedScene, PosedImage
from data.scenes.frustum import Cameras
from data.scenes.scene import Scene

WIDTH, HEIGHT, FOCAL = 320, 240, 330.0


def textures(seed):
    """Three colour textures [256, 256, 3] float with structure at several scales."""
    rng = np.random.default_rng(seed)
    layers = [cv2.resize(rng.random((n, n, 9)), (256, 256), interpolation=cv2.INTER_CUBIC) for n in (12, 32, 80)]
    total = np.clip(sum(layers) / 1.5 - 0.5, 0, 1)
    return [total[..., 3 * side : 3 * side + 3].astype(np.float32) for side in range(3)]


def dots(seed, count=1500, side=1024, radius=4):
    """Three colour textures [side, side, 3] float of dots, all of one size."""
    rng = np.random.default_rng(seed)
    for _ in range(3):
        surface = np.full((side, side, 3), 0.5, np.float32)
        for x, y in rng.integers(0, side, (count, 2)).tolist():
            cv2.circle(surface, (x, y), radius, rng.random(3).tolist(), -1, cv2.LINE_AA)
        yield surface


def poses(count):
    """c2w [count, 4, 4] (OpenCV) on an arc about the diagonal, looking at the corner."""
    found = []
    for ratio in np.linspace(-1, 1, count):
        angle = np.radians(45 + 25 * ratio)
        centre = 4.2 * np.array([np.cos(angle) * 0.8, np.sin(angle) * 0.8, 0.6 + 0.1 * np.cos(3 * ratio)])
        forward = np.array([0.6, 0.6, 0.6]) - centre
        forward /= np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        pose = np.eye(4)
        pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
        pose[:3, 3] = centre
        found.append(pose)
    return np.array(found)


def render(pose, surfaces, width=WIDTH, height=HEIGHT, focal=FOCAL):
    """RGB uint8 [height, width, 3]; where no square is hit, grey."""
    x, y = np.meshgrid(np.arange(width) - (width - 1) / 2, np.arange(height) - (height - 1) / 2)
    rays = np.stack([x / focal, y / focal, np.ones_like(x)], axis=-1) @ pose[:3, :3].T
    nearest = np.full((height, width), np.inf)
    picture = np.full((height, width, 3), 0.5, np.float32)
    for axis, surface in enumerate(surfaces):
        with np.errstate(divide="ignore"):
            distance = -pose[axis, 3] / rays[..., axis]
        hit = pose[:3, 3] + distance[..., None] * rays
        u, v = np.moveaxis(np.delete(hit, axis, axis=-1), -1, 0) / 2.0
        inside = (distance > 0) & (distance < nearest) & (u >= 0) & (u <= 1) & (v >= 0) & (v <= 1)
        places = [(part * (len(surface) - 1)).astype(np.float32) for part in (u, v)]
        seen = cv2.remap(surface, *places, cv2.INTER_LINEAR)
        picture[inside], nearest[inside] = seen[inside], distance[inside]
    return np.rint(picture * 255).astype(np.uint8)


def write_photographs(folder, count, seed=1, prefix="photo"):
    """Writes prefix_0.png ... of one corner; returns their poses."""
    folder.mkdir(parents=True, exist_ok=True)
    surfaces = textures(seed)
    for index, pose in enumerate(poses(count)):
        write_image(folder / f"{prefix}_{index}.png", render(pose, surfaces))
    return poses(count)


def write_near_and_far(folder, near, far):
    """Writes 0.png ... of 1280 x 960 pixels, the last `far` from twice as far; returns their poses.

    The corner is dotted, and from there a dot has a radius of 1.5 pixels: too small for features of full size.
    """
    folder.mkdir()
    found, surfaces = np.concatenate([poses(near), poses(far)]), list(dots(1))
    found[near:, :3, 3] += found[near:, :3, 3] - 0.6
    for index, pose in enumerate(found):
        write_image(folder / f"{index}.png", render(pose, surfaces, 4 * WIDTH, 4 * HEIGHT, 4 * FOCAL))
    return found


ROOM, BLOCK = 3.0, 0.5  # half the sides of the room and of a block in its middle
TEXTURE = 512  # pixels per side
ROUGHNESS = (6, 14, 34)  # cells of the texture's layers per side


def room_textures(seed):
    """A colour texture [TEXTURE, TEXTURE, 3] for each face of a cube."""
    rng, size = np.random.default_rng(seed), (TEXTURE, TEXTURE)
    for _ in range(6):
        layers = [cv2.resize(rng.random((n, n, 3)), size, interpolation=cv2.INTER_CUBIC) for n in ROUGHNESS]
        yield np.clip(sum(layers) / 1.5 - 0.5, 0, 1).astype(np.float32)


def cube(origin, rays, half, faces, from_inside):
    """Distances [H, W], infinite where the cube is missed, and colours [H, W, 3] of a cube around the origin."""
    with np.errstate(divide="ignore", invalid="ignore"):
        near, far = np.sort(np.stack([(-half - origin) / rays, (half - origin) / rays]), axis=0)
    enters, leaves = near.max(axis=-1), far.min(axis=-1)
    distance = leaves if from_inside else np.where((enters <= leaves) & (enters > 0), enters, np.inf)
    hit = origin + np.where(np.isfinite(distance), distance, 0.0)[..., None] * rays
    axis, colours = np.argmax(np.abs(hit), axis=-1), np.zeros((*distance.shape, 3), np.float32)
    for face, texture in enumerate(faces):
        on_face = (axis == face // 2) & ((np.take_along_axis(hit, axis[..., None], -1)[..., 0] > 0) == bool(face % 2))
        places = ((np.delete(hit, face // 2, axis=-1) / half + 1) / 2 * (TEXTURE - 1)).astype(np.float32)
        colours[on_face] = cv2.remap(texture, places[..., 0], places[..., 1], cv2.INTER_LINEAR)[on_face]
    return distance, colours


def room_poses(count):
    """c2w [count, 4, 4] (OpenCV) on a wave around the block, looking at it."""
    for angle in np.linspace(0, 2 * np.pi, count, endpoint=False):
        centre = np.array([1.6 * np.cos(angle), 1.6 * np.sin(angle), 0.6 + 0.3 * np.sin(3 * angle)])
        forward = -centre / np.linalg.norm(centre)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        pose = np.eye(4)
        pose[:3] = np.stack([right, np.cross(forward, right), forward, centre], axis=1)
        yield pose


def write_fisheye(folder, count, degrees):
    """Writes 00.png ... whose width covers `degrees`; returns the poses [count, 4, 4] and the focal length, pixels."""
    folder.mkdir(parents=True)
    room, block, found = list(room_textures(1)), list(room_textures(2)), np.array(list(room_poses(count)))
    focal = WIDTH / np.radians(degrees)
    x, y = np.meshgrid(np.arange(WIDTH) - (WIDTH - 1) / 2, np.arange(HEIGHT) - (HEIGHT - 1) / 2)
    radius = np.hypot(x, y)
    aside = np.sin(radius / focal) / radius
    in_camera = np.stack([aside * x, aside * y, np.cos(radius / focal)], axis=-1)
    for index, pose in enumerate(found):
        rays, origin = in_camera @ pose[:3, :3].T, pose[:3, 3]
        _, picture = cube(origin, rays, ROOM, room, True)
        distance, colours = cube(origin, rays, BLOCK, block, False)
        picture[np.isfinite(distance)] = colours[np.isfinite(distance)]
        picture[radius > focal * np.pi / 2] = 0.0  # the edge of the lens
        write_image(folder / f"{index:02}.png", np.rint(255 * picture).astype(np.uint8))
    return found, focal


def picture(height=20, width=30, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save_with_exif(path, pixels, orientation=None, focal=None):
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    if focal is not None:
        exif.get_ifd(0x8769)[0xA405] = focal
    Image.fromarray(pixels).save(path, exif=exif)


RADIUS, SIZE, SPHERE_FOCAL = 0.6, 120, 180.0
INTRINSICS = np.array([[SPHERE_FOCAL, 0, 59.5], [0, SPHERE_FOCAL, 59.5], [0, 0, 1]])


def directions_from(camera):
    """Directions [H, W, 3] of the pixels with a component of 1 along the optical axis."""
    x, y = np.meshgrid(np.arange(SIZE), np.arange(SIZE))
    local = np.stack([(x - 59.5) / SPHERE_FOCAL, (y - 59.5) / SPHERE_FOCAL, np.ones(x.shape)], axis=-1)
    return local @ camera[:3, :3].T


def sphere_depth(camera):
    """The depth [H, W] of the sphere along the optical axis; 0 beside it."""
    towards, centre = directions_from(camera), camera[:3, 3]
    a, b, c = (towards**2).sum(-1), towards @ centre, centre @ centre - RADIUS**2
    root = b * b - a * c
    return np.where(root > 0, (-b - np.sqrt(np.maximum(root, 0))) / a, 0)


def solid_texture(points):
    """Grey values in [0, 1] at points [..., 3]: waves of random directions, so that no place looks like another."""
    rng = np.random.default_rng(5)
    waves = rng.normal(size=(3, 40)) * 50
    return 0.5 + 0.12 * np.sin(points @ waves + rng.uniform(0, 6, 40)).sum(-1) / np.sqrt(40) * 2


def drawn(camera, paint=solid_texture):
    depth = sphere_depth(camera)
    points = camera[:3, 3] + directions_from(camera) * depth[..., None]
    grey = np.where(depth > 0, np.clip(paint(points), 0, 1), 0)
    return np.repeat((255 * grey).round().astype(np.uint8)[..., None], 3, axis=2)


def ring(count):
    """Cameras at 3 radii around the sphere, 8 degrees apart."""
    angles = np.radians(8.0) * np.arange(count)
    poses = np.stack([look_at(3 * np.array([np.cos(a), np.sin(a), 0.3 * np.sin(3 * a)])) for a in angles])
    return Cameras(np.repeat(INTRINSICS[None], count, 0), poses, np.full((count, 2), SIZE, np.float64))


def scene_of(cameras, paint=solid_texture):
    count = len(cameras)
    return Scene(
        name="sphere",
        image_names=tuple(f"{view}.png" for view in range(count)),
        images=tuple(drawn(pose, paint) for pose in cameras.c2w),
        masks=None,
        intrinsics=cameras.intrinsics,
        c2w=cameras.c2w,
        scene_to_world=np.eye(4),
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
    )


WALL_FOCAL, WALL_VIEWS = 300.0, 9
K = np.array([[WALL_FOCAL, 0, (WIDTH - 1) / 2], [0, WALL_FOCAL, (HEIGHT - 1) / 2], [0, 0, 1]])


def wall_texture(seed):
    noise = np.random.default_rng(seed).integers(0, 256, (600, 600, 3)).astype(np.float32)
    return np.clip((cv2.GaussianBlur(noise, (0, 0), 2.5) - 128) * 5 + 128, 0, 255).astype(np.uint8)


def wall_poses():
    """On an arc before two walls that meet."""
    found = []
    for turn in np.linspace(-0.5, 0.5, WALL_VIEWS):
        c2w = np.eye(4)
        c2w[:3, :3] = Rotation.from_rotvec([0.08 * np.cos(5 * turn), -turn, 0]).as_matrix()
        c2w[:3, 3] = [3 * np.sin(turn), 0.3 * np.cos(7 * turn), -3 * np.cos(turn)]
        found.append(c2w)
    return found


def wall_picture(c2w, walls):
    """Two walls that meet in the line x = z = 0."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for side, wall in zip((-1, 1), walls, strict=True):
        # The place of the texture's pixel (i, j) in the world: along the wall, and down.
        to_world = np.array([[side * 0.004, 0, 0], [0, 0.006, -1.8], [-0.0015, 0, 0], [0, 0, 1.0]])
        to_pixels = K @ np.linalg.inv(c2w)[:3] @ to_world
        warped = cv2.warpPerspective(wall, to_pixels, (WIDTH, HEIGHT))
        shown = cv2.warpPerspective(np.full(wall.shape[:2], 255, np.uint8), to_pixels, (WIDTH, HEIGHT)) > 128
        image[shown] = warped[shown]
    return image


def walls(folder):
    """The scene, with its photographs in `folder`."""
    sides, posed_images = [wall_texture(1), wall_texture(2)], []
    for number, c2w in enumerate(wall_poses()):
        write_image(folder / f"{number}.png", wall_picture(c2w, sides))
        posed_images.append(PosedImage(folder / f"{number}.png", Lens(K, size=(WIDTH, HEIGHT)), c2w))
    return ParsedScene("walls", folder, tuple(posed_images))


def off_walls(points):
    """Distances of points [N, 3] from the walls, along z."""
    return np.abs(points[:, 2] + 0.375 * np.abs(points[:, 0]))

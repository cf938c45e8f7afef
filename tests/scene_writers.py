"""One synthetic scene, written in each format from the format's definition and not with the readers' code.

A sphere of radius 1 around the origin, coloured by its normal, seen by cameras of different lenses, sizes and principal
points. Here pixels are counted from the image's corner (the first one covers [0, 1)), and a camera is its centre and
three directions; each writer turns that into what its format says.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from scipy.spatial.transform import Rotation


@dataclass(frozen=True, eq=False)
class View:
    """A camera and its picture; all vectors in the world."""

    name: str  # without suffix
    size: tuple[int, int]  # width, height
    focal: tuple[float, float]
    middle: tuple[float, float]  # principal point, from the image's corner
    k: tuple[float, ...]  # radial: k1 k2 (k3), or fisheye: k1 k2 k3 k4
    p: tuple[float, float]  # tangential
    is_fisheye: bool
    centre: np.ndarray
    right: np.ndarray
    down: np.ndarray
    forward: np.ndarray


def make_views(n_views: int = 6, distorted: bool = True, alike: bool = False, fisheye: bool = False) -> list[View]:
    """Cameras all around, 3 to 4 away; `alike`: of one lens, size and the image's middle as principal point."""
    rng = np.random.default_rng(5)
    views = []
    for index in range(n_views):
        width, height = (96, 72) if alike else (80 + 8 * index, 100 - 6 * index)
        focal = (110.0, 110.0) if alike else (100.0 + 5 * index, 104.0 + 3 * index)
        middle = (width / 2, height / 2) if alike else (width / 2 + 3.3 - index, height / 2 - 2.6 + 0.7 * index)
        k = (0.06, -0.08) if distorted else (0.0, 0.0)
        if fisheye:
            k = (0.04, -0.02, 0.006, -0.001)
        p = (0.002, -0.003) if distorted and not fisheye else (0.0, 0.0)
        centre = rng.normal(size=3)
        centre *= (3 + 0.15 * index) / np.linalg.norm(centre)
        aim = 0.1 * rng.normal(size=3) - centre
        forward = aim / np.linalg.norm(aim)
        down = np.cross(forward, rng.normal(size=3))  # rolled in any way
        down /= np.linalg.norm(down)
        right = np.cross(down, forward)
        views.append(View(f"view_{index}", (width, height), focal, middle, k, p, fisheye, centre, right, down, forward))
    return views


def shared_lens(views: list[View]) -> list[View]:
    """All with the lens, size and principal point of the first."""
    same = {key: getattr(views[0], key) for key in ("size", "focal", "middle", "k", "p")}
    return [dataclasses.replace(view, **same) for view in views]


def project(view: View, points: np.ndarray) -> np.ndarray:
    """Where points [P, 3] appear, from the image's corner [P, 2]: Brown's model, or the equidistant fisheye."""
    offset = points - view.centre
    x, y = (offset @ axis / (offset @ view.forward) for axis in (view.right, view.down))
    r2 = x**2 + y**2
    if view.is_fisheye:
        radius = np.sqrt(r2)
        theta = np.arctan(radius)
        bent = theta * (1 + sum(k * theta ** (2 * n + 2) for n, k in enumerate(view.k)))
        x, y = x * bent / radius, y * bent / radius
    else:
        radial = 1 + sum(k * r2 ** (n + 1) for n, k in enumerate(view.k))
        p1, p2 = view.p
        x, y = (
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x**2),
            y * radial + 2 * p2 * x * y + p1 * (r2 + 2 * y**2),
        )
    return np.stack([view.focal[0] * x + view.middle[0], view.focal[1] * y + view.middle[1]], axis=1)


def draw(view: View) -> np.ndarray:
    """RGBA uint8 [H, W, 4]: 0.5 + 0.5 * normal where the sphere is, transparent black elsewhere.

    Each pixel's ray is found by turning `project` around: it is the one statement of the lens.
    """
    width, height = view.size
    rows, columns = np.mgrid[:height, :width]
    wanted = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)
    slopes = (wanted - view.middle) / view.focal
    for _ in range(20):  # fixed point: the lens bends little
        slopes -= (_project_slopes(view, slopes) - wanted) / view.focal
    rays = slopes[:, :1] * view.right + slopes[:, 1:] * view.down + view.forward
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    along = -rays @ view.centre
    inside = along**2 - (view.centre @ view.centre - 1)
    hit = inside > 0
    normals = view.centre + (along - np.sqrt(np.where(hit, inside, 0)))[:, None] * rays
    rgb = np.where(hit[:, None], 0.5 + 0.5 * normals, 0)
    return np.rint(np.concatenate([rgb, hit[:, None]], axis=1) * 255).astype(np.uint8).reshape(height, width, 4)


def _project_slopes(view: View, slopes: np.ndarray) -> np.ndarray:
    return project(view, view.centre + slopes[:, :1] * view.right + slopes[:, 1:] * view.down + view.forward)


def save_picture(path: Path, rgba: np.ndarray, alpha: bool = True) -> None:
    """By the suffix; OpenCV's order of channels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bgr = rgba[..., 2::-1]
    samples = np.dstack([bgr, rgba[..., 3]]) if alpha else np.ascontiguousarray(bgr)
    path.write_bytes(cv2.imencode(path.suffix.lower(), samples)[1].tobytes())


def opengl_matrix(view: View) -> list[list[float]]:
    """Camera to world with columns right, up, backwards, centre."""
    columns = np.stack([view.right, -view.down, -view.forward, view.centre], axis=1)
    return [*columns.tolist(), [0.0, 0.0, 0.0, 1.0]]


def lens_keys(view: View) -> dict[str, object]:
    """The lens as instant-ngp and nerfstudio spell it; both count from the corner."""
    names = ("k1", "k2", "k3", "k4") if view.is_fisheye else ("k1", "k2", "k3")
    return {
        "fl_x": view.focal[0],
        "fl_y": view.focal[1],
        "cx": view.middle[0],
        "cy": view.middle[1],
        "w": view.size[0],
        "h": view.size[1],
        **dict(zip(names, view.k, strict=False)),
        "p1": view.p[0],
        "p2": view.p[1],
    }


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4))


def write_blender(folder: Path, views: list[View], n_held_out: int = 2) -> None:
    """transforms_train.json and, for the last views, transforms_test.json; views must be alike and undistorted."""
    angle = 2 * np.arctan(views[0].size[0] / (2 * views[0].focal[0]))
    count = len(views) - n_held_out
    for split, part in (("train", views[:count]), ("test", views[count:])):
        frames = []
        for view in part:
            save_picture(folder / split / f"{view.name}.png", draw(view))
            frames.append({"file_path": f"./{split}/{view.name}", "transform_matrix": opengl_matrix(view)})
        if frames:
            write_json(folder / f"transforms_{split}.json", {"camera_angle_x": angle, "frames": frames})


def write_ngp(folder: Path, views: list[View], shared: bool = False) -> None:
    """transforms.json with the lens in every frame, or once where `shared`."""
    frames = []
    for view in views:
        save_picture(folder / "images" / f"{view.name}.png", draw(view), alpha=False)
        own = {} if shared else lens_keys(view) | ({"is_fisheye": True} if view.is_fisheye else {})
        frames.append({"file_path": f"images/{view.name}.png", "transform_matrix": opengl_matrix(view)} | own)
    common = lens_keys(views[0]) | {"is_fisheye": views[0].is_fisheye} if shared else {}
    write_json(folder / "transforms.json", common | {"aabb_scale": 4, "frames": frames})


def write_nerfstudio(folder: Path, views: list[View], points: np.ndarray | None = None, masks: bool = False) -> None:
    """transforms.json with the lens and the camera model in every frame, and sparse_pc.ply where there are `points`."""
    frames = []
    for view in views:
        rgba = draw(view)
        save_picture(folder / "images" / f"{view.name}.png", rgba, alpha=False)
        model = "OPENCV_FISHEYE" if view.is_fisheye else "OPENCV"
        frame = {"file_path": f"images/{view.name}.png", "transform_matrix": opengl_matrix(view)}
        if masks:
            save_picture(folder / "masks" / f"{view.name}.png", np.repeat(rgba[..., 3:], 4, axis=2), alpha=False)
            frame["mask_path"] = f"masks/{view.name}.png"
        frames.append(frame | {"camera_model": model} | lens_keys(view))
    content = {"frames": frames, "applied_transform": [[1.0, 0, 0, 0], [0, 0, 1.0, 0], [0, -1.0, 0, 0]]}
    if points is not None:
        content["ply_file_path"] = "sparse_pc.ply"
        lines = [f"{x:8f} {y:8f} {z:8f} 10 200 30" for x, y, z in points]
        kinds = [f"property float {axis}" for axis in "xyz"] + [f"property uint8 {c}" for c in ("red", "green", "blue")]
        header = ["ply", "format ascii 1.0", f"element vertex {len(points)}", *kinds, "end_header"]
        (folder / "sparse_pc.ply").write_text("\n".join([*header, *lines]) + "\n")
    write_json(folder / "transforms.json", content)


def write_llff(folder: Path, views: list[View], pictures: str = "images") -> None:
    """poses_bounds.npy and images/; views must have one focal length each, no distortion and the middle's axis."""
    rows = []
    for view in sorted(views, key=lambda view: view.name):
        save_picture(folder / pictures / f"{view.name}.png", draw(view), alpha=False)
        shape = [view.size[1], view.size[0], view.focal[0]]
        pose = np.stack([view.down, view.right, -view.forward, view.centre, shape], axis=1)
        rows.append([*pose.ravel(), 1.9, 4.9])
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "poses_bounds.npy", np.array(rows))


def sphere_points(count: int = 200, seed: int = 1) -> np.ndarray:
    """Points [count, 3] on the sphere."""
    points = np.random.default_rng(seed).normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def write_metashape(folder: Path, views: list[View], part: str = "chunk") -> None:
    """cameras.xml and images/, a sensor per view; the chunk, or its component, is turned, scaled and shifted."""
    turn, scale, shift = Rotation.from_rotvec([0.4, -0.9, 0.3]).as_matrix(), 2.5, np.array([3.0, -1.0, 0.5])
    kind = "fisheye" if views[0].is_fisheye else "frame"
    sensors, cameras = [], []
    for index, view in enumerate(views):
        save_picture(folder / "images" / f"{view.name}.png", draw(view), alpha=False)
        (width, height), (fx, fy), (p1, p2) = view.size, view.focal, view.p
        values = {"f": fy, "b1": fx - fy, "cx": view.middle[0] - width / 2, "cy": view.middle[1] - height / 2}
        values |= {f"k{n + 1}": k for n, k in enumerate(view.k)} | {"p1": p2, "p2": p1}
        size = f'<resolution width="{width}" height="{height}"/>'
        inside = size + "".join(f"<{name}>{value!r}</{name}>" for name, value in values.items() if value)
        sensors.append(f'<sensor id="{index}" type="{kind}">{size}<calibration class="adjusted">{inside}</calibration>')
        pose = np.eye(4)
        pose[:3] = np.stack([view.right, view.down, view.forward, (view.centre - shift) / scale], axis=1)
        pose[:3] = turn.T @ pose[:3]
        numbers = " ".join(repr(float(value)) for value in pose.ravel())
        label = view.name if index % 2 else f"{view.name}.png"
        cameras.append(f'<camera id="{index}" sensor_id="{index}" component_id="0" label="{label}">')
        cameras[-1] += f"<transform>{numbers}</transform></camera>"
    world = f"<rotation>{' '.join(map(repr, turn.ravel().tolist()))}</rotation><scale>{scale}</scale>"
    world = f"<transform>{world}<translation>{' '.join(map(repr, shift.tolist()))}</translation></transform>"
    text = f"<sensors>{''.join(f'{sensor}</sensor>' for sensor in sensors)}</sensors>"
    if part == "component":
        text += f'<components><component id="0" label="Component 1">{world}</component></components>'
    cameras.append('<camera id="90" sensor_id="0" label="not aligned"/>')
    text += f"<cameras><group>{cameras[0]}</group>{''.join(cameras[1:])}</cameras>{world if part == 'chunk' else ''}"
    (folder / "cameras.xml").write_text(
        f'<?xml version="1.0" encoding="UTF-8"?><document version="2.0.0"><chunk label="a">{text}</chunk></document>'
    )


def write_realitycapture(folder: Path, views: list[View]) -> None:
    """images/ with an XMP file per view; only the horizontal focal length and no tangential distortion are kept."""
    for view in views:
        save_picture(folder / "images" / f"{view.name}.png", draw(view), alpha=False)
        (width, height), longer = view.size, max(view.size)
        values = {"DistortionModel": "brown3", "FocalLength35mm": 36.0 * view.focal[0] / longer, "Skew": 0}
        values |= {"AspectRatio": 1, "PrincipalPointU": (view.middle[0] - width / 2) / longer}
        values |= {"PrincipalPointV": (view.middle[1] - height / 2) / longer, "PosePrior": "locked"}
        inside = {
            "Rotation": np.stack([view.right, view.down, view.forward]).ravel(),
            "Position": view.centre,
            "DistortionCoeficients": [*view.k, *[0] * (6 - len(view.k))],
        }
        attributes = " ".join(f'xcr:{name}="{value}"' for name, value in values.items())
        elements = "".join(
            f"<xcr:{name}>{' '.join(str(float(number)) for number in numbers)}</xcr:{name}>"
            for name, numbers in inside.items()
        )
        (folder / "images" / f"{view.name}.xmp").write_text(
            '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
            f'<rdf:Description xmlns:xcr="http://www.capturingreality.com/ns/xcr/1.1#" {attributes}>{elements}'
            "</rdf:Description></rdf:RDF></x:xmpmeta>"
        )


def write_realitycapture_table(folder: Path, views: list[View]) -> None:
    """images/ and cameras.csv, its angles as its maker describes them.

    Heading is the compass direction of the image's top (clockwise from +y, seen from above), pitch its elevation, and
    roll the angle by which the image's right side is turned from the horizontal towards the scene.
    """
    lines = ["#name,x,y,alt,heading,pitch,roll,f,px,py,k1,k2,k3,k4,t1,t2"]
    for view in views:
        save_picture(folder / "images" / f"{view.name}.png", draw(view), alpha=False)
        top, longer = -view.down, max(view.size)
        heading, pitch = np.arctan2(top[0], top[1]), np.arcsin(top[2])
        level = np.array([np.cos(heading), -np.sin(heading), 0.0])  # to the right of the heading, horizontal
        roll = np.arctan2(view.right @ np.cross(top, level), view.right @ level)
        angles = np.rad2deg([heading, pitch, roll])
        middle = [(at - side / 2) / longer for at, side in zip(view.middle, view.size, strict=True)]
        row = [*view.centre, *angles, 36.0 * view.focal[0] / longer, *middle, *view.k, *[0] * (6 - len(view.k))]
        lines.append(",".join([f"{view.name}.png", *(repr(float(value)) for value in row)]))
    (folder / "cameras.csv").write_text("\n".join([*lines, ""]))

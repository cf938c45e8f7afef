"""The format of Bundler v0.3, which VisualSFM, Metashape and COLMAP write, too.

    folder/bundle/bundle.out   focal length, k1, k2 and pose of each camera, and points; also in the folder itself, as
                               bundle.rd.out, bundler.out or NAME.bundle.out
    folder/list.txt            the photographs, in the order of the cameras; also NAME.list.txt, and beside bundle.out
    folder/images/             the photographs; else anywhere below the folder

https://www.cs.cornell.edu/~snavely/bundler/bundler-v0.4-manual.html, "Output format and scene representation": R and t
map the world to a camera that looks along -z with y up. With p = -(x, y) / z and r^2 = |p|^2, f (1 + k1 r^2 + k2 r^4) p
counts from the middle of the image, y up. A focal length of 0 marks a photograph without a pose.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from data.errors import SceneError, one_line
from data.io.images import image_size, photographs_folder
from data.io.named_files import named_file
from data.io.untrusted import MAX_POINTS_BYTES, read_content
from data.parsed_scene import CameraFiles, ParsedScene
from data.scenes.readers.shots import camera, scene_of_shots, shot, sparse

HEADER = "# Bundle file v0.3"
CAMERA_FILE = re.compile(r"(.*\.)?bundler?(\.rd)?\.out", re.IGNORECASE)
FOCAL = re.compile(r"\d+( [\d.eE+-]+)?")  # Bundler's own list has 0 and a focal length after the name
FLIP = np.diag([1.0, -1.0, -1.0])


def matches(folder: Path) -> str:
    """The camera file; "" where it is missing."""
    places = [place for place in (folder, folder / "bundle") if place.is_dir()]
    found = sorted(path for place in places for path in place.glob("*.out") if CAMERA_FILE.fullmatch(path.name))
    return found[0].relative_to(folder).as_posix() if found else ""


def read_bundler(folder: Path, files: CameraFiles) -> ParsedScene:
    """Read the scene folder; raises SceneError or ImageError for missing or inconsistent files."""
    source = folder / (matches(folder) or "bundle.out")
    where, (cameras, points) = str(source), _read(source)
    names = _names(folder, source)
    if len(names) != len(cameras):
        raise SceneError(
            f"{source}: has {len(cameras)} cameras and its list {len(names)} photographs; export both again"
        )
    place, shots, without = photographs_folder(folder) or folder, [], []
    for name, numbers in zip(names, cameras, strict=True):
        focal, k1, k2 = numbers[:3]
        if focal == 0:
            without.append(name)
            continue
        at, path = f"{source}: {one_line(name)}", named_file(place, name)
        size = np.array(image_size(path) if path else (2, 2))  # a missing photograph is left out later
        lens = camera(at, [[focal] * 2, (size - 1) / 2], size, (k1, k2, 0, 0))
        w2c = FLIP @ numbers[3:12].reshape(3, 3)
        shots.append(shot(at, name, lens, w2c.T, -w2c.T @ FLIP @ numbers[12:]))
    xyz, rgb, seen = points
    return scene_of_shots(folder, source, shots, sparse(where, xyz, seen, rgb), without)


def _read(source: Path) -> tuple[np.ndarray, tuple[list[np.ndarray], list[np.ndarray], list[int]]]:
    """The numbers of the cameras [N, 15], and places, colours and counts of views of the points."""
    header, _, body = read_content(source, MAX_POINTS_BYTES).decode("utf-8-sig", "replace").partition("\n")
    if header.strip() != HEADER:
        raise SceneError(f"{source}: does not begin with {HEADER!r}, the version that is read; export it again")
    try:
        values = np.array(body.split(), dtype=np.float64)
        count, n_points = map(int, values[:2].tolist())
        cameras, at = values[2 : 2 + 15 * count].reshape(count, 15), 2 + 15 * count
        if n_points < 0 or not np.isfinite(cameras).all():
            raise ValueError("a number is out of range")
        xyz, rgb, seen = [], [], []
        for _ in range(n_points):
            xyz.append(values[at : at + 3])
            rgb.append(values[at + 3 : at + 6])
            seen.append(int(values[at + 6]))
            if seen[-1] < 0:
                raise ValueError("a point has a negative number of views")
            at += 7 + 4 * seen[-1]
    except (ValueError, IndexError, OverflowError) as error:
        raise SceneError(f"{source}: is truncated or damaged; export it again") from error
    return cameras, (xyz, rgb, seen)


def _names(folder: Path, source: Path) -> list[str]:
    own = re.sub(r"bundler?(\.rd)?\.out$", "list.txt", source.name, flags=re.IGNORECASE)
    places = [source.parent / own, source.parent / "list.txt", folder / "list.txt"]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise SceneError(f"{source}: has no list.txt beside it, which names the photographs; put it there")
    lines = read_content(path).decode("utf-8-sig", "replace").splitlines()
    return [_name(line.strip()) for line in lines if line.strip()]


def _name(line: str) -> str:
    """The line of a photograph without its focal length."""
    parts = (line.rsplit(maxsplit=count) for count in (2, 1))
    return next((name for name, *last in parts if FOCAL.fullmatch(" ".join(last))), line)

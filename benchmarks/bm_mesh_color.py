"""Compare a coloured mesh with the rendering: `python -m benchmarks.bm_mesh_color FLAGS [--pictures FOLDER]`.

FLAGS are those of `exp_runner.py --mode validate_mesh`. The mesh is written, read again, and ray-cast from the held-out
cameras through the pixel centres. The mesh and the model's rendering are compared with the photographs over the pixels
whose ray meets the mesh.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import trimesh

from data.io.images import sample_bilinear, to_float, to_uint8, write_image
from data.io.streams import say
from data.scenes.scene import Scene
from models.commands.arguments import parse_arguments
from models.commands.conf import read_conf
from models.commands.mesh_flags import full_request
from models.commands.shared import choose_device, open_trained, show
from models.experiment import held_out_scene
from models.requests import TEXTURE

WANTED = 4.0  # dB that the mesh may lie below the rendering
BEHIND = 0.6  # grey, before which white and black objects can be seen

Colors = Callable[[np.ndarray, np.ndarray], np.ndarray]  # faces [P], shares of their corners [P, 3] -> RGB [P, 3]


def colors_of(mesh: trimesh.Trimesh) -> Colors:
    """Colours in [0, 1] at positions on the faces of a mesh, from its texture or its vertices."""
    if isinstance(mesh.visual, trimesh.visual.TextureVisuals):
        picture = np.asarray(mesh.visual.material.baseColorTexture.convert("RGB"))
        size, uv = np.array(picture.shape[1::-1]), np.asarray(mesh.visual.uv)

        def from_texture(face: np.ndarray, share: np.ndarray) -> np.ndarray:
            place = np.einsum("pk,pkc->pc", share, uv[mesh.faces[face]])
            return sample_bilinear(picture, (place * [1, -1] + [0, 1]) * size - 0.5)

        return from_texture
    rgb = to_float(np.asarray(mesh.visual.vertex_colors)[:, :3])
    return lambda face, share: np.einsum("pk,pkc->pc", share, rgb[mesh.faces[face]])


def seen(mesh: trimesh.Trimesh, colors: Colors, scene: Scene, view: int) -> tuple[np.ndarray, np.ndarray]:
    """The mesh in the unit-sphere frame seen from a camera: RGB [h, w, 3], grey elsewhere, and its pixels: bool."""
    rays, shape = scene.rays(view)
    points, ray, face = mesh.ray.intersects_location(
        rays.origins.astype(float), rays.directions.astype(float), multiple_hits=False
    )
    share = trimesh.triangles.points_to_barycentric(mesh.triangles[face], points)
    share = np.clip(np.nan_to_num(share, nan=1.0 / 3.0), 0.0, 1.0)
    picture, meets = np.full((len(rays), 3), BEHIND), np.zeros(len(rays), bool)
    picture[ray], meets[ray] = colors(face, share / share.sum(axis=1, keepdims=True)), True
    return picture.reshape(*shape, 3), meets.reshape(shape)


def decibels(a: np.ndarray, b: np.ndarray) -> float:
    """PSNR of colours in [0, 1]."""
    return float(-10.0 * np.log10(np.mean((a - b) ** 2)))


def compare(snapshot: object, mesh: trimesh.Trimesh, pictures: Path | None) -> None:
    """Print a line for each held-out view, and the means; write photograph | mesh | rendering as images."""
    scene = held_out_scene(snapshot.experiment)
    colors, figures = colors_of(mesh), []
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
    for view in range(scene.n_views):
        photograph = scene.rgb_image(view)
        picture, meets = seen(mesh, colors, scene, view)
        rendering = snapshot.render(*scene.rays(view)).rgb
        figures.append([decibels(found[meets], photograph[meets]) for found in (picture, rendering)])
        say(f"{scene.image_names[view]}: mesh {figures[-1][0]:.2f} dB, rendering {figures[-1][1]:.2f} dB")
        if pictures is not None:
            path = pictures / f"{Path(scene.image_names[view]).stem}.png"
            write_image(path, to_uint8(np.concatenate([photograph, picture, rendering], axis=1)))
    mesh_mean, rendering_mean = np.mean(figures, axis=0)
    missed = max(0.0, rendering_mean - WANTED - mesh_mean)
    say(
        f"mean of {scene.n_views}: mesh {mesh_mean:.2f} dB, rendering {rendering_mean:.2f} dB, "
        f"{rendering_mean - mesh_mean:.2f} dB between them; {WANTED:g} allowed, missed by {missed:.2f}"
    )


def main() -> None:
    """Extract the mesh and compare."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--pictures", type=Path, help="a folder for photograph, mesh and rendering")
    parser.add_argument("--keep", type=Path, help="file of the mesh, which is used if it exists")
    own, rest = parser.parse_known_args()
    arguments = parse_arguments([*rest, "--mode", "validate_mesh", "--frame", "unit"])
    conf = read_conf(arguments)
    choose_device(arguments, conf)
    with tempfile.TemporaryDirectory() as folder:
        suffix = ".glb" if arguments.values.colour == TEXTURE else ".ply"
        arguments.values.output = own.keep or Path(folder) / f"mesh{suffix}"
        request = full_request(arguments.values)
        experiment = open_trained(arguments, conf)
        from models.results.meshes import validate_mesh

        def work(snapshot: object) -> None:
            begin = time.perf_counter()
            if not request.output.exists():
                validate_mesh(snapshot, request)
                say(f"mesh in {time.perf_counter() - begin:.1f} s")
            compare(snapshot, trimesh.load(request.output, process=False, force="mesh"), own.pictures)

        sys.exit(show(experiment, work))


if __name__ == "__main__":
    main()

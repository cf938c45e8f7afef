"""The flags of `--mode validate_mesh` besides resolution and level, and the `MeshRequest` that they describe."""

from __future__ import annotations

import argparse
import importlib.util
import os
from dataclasses import replace
from pathlib import Path

from data.errors import UserError
from data.io.files import require_place
from models.commands.command import OUTPUT, flag
from models.commands.flag_types import MAX_INT, finite, positive, whole
from models.commands.shared import FRAME, mesh_request
from models.requests import AXES, CLEANINGS, COLOURS, PIECES, TEXTURE, TEXTURE_SIZE, UNIT, VERTEX, MeshRequest

LARGEST_TEXTURE = 16384  # the limit of GPUs
FEWEST_FACES = 4  # of a closed surface

OUTPUT_FILE = flag(
    "--output",
    OUTPUT,
    type=Path,
    metavar="FILE",
    help="output file. validate_mesh: .ply, .obj, .glb or .stl (default: meshes/<step>.ply, .glb with a "
    "texture). render: .mp4, or a folder for PNGs (default: in render/). compare: .html (default: "
    "compare.html in the first experiment)",
)
MESH_FILE = flag(
    "--mesh",
    OUTPUT,
    dest="mesh_file",
    type=Path,
    metavar="FILE",
    help="validate_mesh, evaluate: mesh in --frame to colour (without a checkpoint) or to evaluate, .ply, .obj, .stl "
    "or .glb (default: it is extracted)",
)
UP = flag(
    "--up",
    OUTPUT,
    choices=AXES,
    help="validate_mesh: up axis of the file (default: y for .glb and .obj, z for .ply and .stl); evaluate: of --mesh "
    "and --gt of other programs",
)
ALONE = flag(
    "--object",
    OUTPUT,
    dest="is_object",
    action="store_true",
    help="validate_mesh: remove the ground on which the object stands, and components below a tenth of the largest; "
    "the log says if no ground was found. evaluate: of such a --mesh, points on the ground are not evaluated",
)
FINISH = (
    flag(
        "--bbox",
        OUTPUT,
        nargs=6,
        type=finite,
        metavar=("X0", "Y0", "Z0", "X1", "Y1", "Z1"),
        help="validate_mesh: region to extract, two corners in --frame (default: dataset.bbox, else the box "
        "around the region of interest)",
    ),
    FRAME,
    UP,
    flag(
        "--no-refine",
        OUTPUT,
        dest="is_refined",
        action="store_false",
        help="validate_mesh: keep the vertices of marching cubes",
    ),
    flag(
        "--clean",
        OUTPUT,
        nargs="?",
        const=PIECES,
        default=PIECES,
        choices=CLEANINGS,
        help="validate_mesh: pieces: remove components below a hundredth of the area of the largest (default). views: "
        "also triangles that no camera sees or that lie outside the dilated masks. largest: also all "
        "components but the largest",
    ),
    flag(
        "--no-clean",
        OUTPUT,
        dest="clean",
        action="store_const",
        const=None,
        help="validate_mesh: keep all components, except closed cavities without a camera",
    ),
    ALONE,
    flag(
        "--decimate",
        OUTPUT,
        type=whole(FEWEST_FACES, MAX_INT),
        metavar="N",
        help="validate_mesh: reduce to about N triangles (default: no reduction; 100000 with a texture)",
    ),
    flag(
        "--simplify",
        OUTPUT,
        type=positive,
        metavar="ERROR",
        help="validate_mesh: reduce to the fewest triangles within this distance of the surface, in units of --frame",
    ),
    flag(
        "--watertight",
        OUTPUT,
        action="store_true",
        help="validate_mesh: close the holes, for 3D printing; the log gives their number and area",
    ),
    flag(
        "--colour",
        OUTPUT,
        choices=COLOURS,
        help="validate_mesh: colours from the photographs (default: vertex, if the format supports it)",
    ),
    flag(
        "--texture_size",
        OUTPUT,
        type=whole(1, LARGEST_TEXTURE),
        default=TEXTURE_SIZE,
        metavar="N",
        help=f"validate_mesh: texels per side of the texture (default: {TEXTURE_SIZE})",
    ),
)
# Optional packages: package -> (the flag that needs it, whether that is given).
PACKAGES = {
    "fast_simplification": (
        "--decimate, --simplify",
        lambda values: values.decimate is not None or values.simplify is not None,
    ),
    "xatlas": ("--colour texture", lambda values: values.colour == TEXTURE),
}


def check(values: argparse.Namespace) -> None:
    """Raises UserError for an empty box, a format that does not support the colours, and a missing package."""
    if values.bbox is not None and not all(
        low < high for low, high in zip(values.bbox[:3], values.bbox[3:], strict=True)
    ):
        raise UserError(
            f"--bbox {' '.join(f'{value:.12g}' for value in values.bbox)}: each of the first three numbers must be "
            "below its counterpart among the last three"
        )
    if values.up is not None and values.frame == UNIT:
        raise UserError("--up: applies only to the world frame; omit --up or --frame unit")
    if values.decimate is not None and values.simplify is not None:
        raise UserError("--decimate, --simplify: one gives the number of triangles, the other the error; give only one")
    if values.mode == "validate_mesh" and values.mesh_file is not None:
        of_extraction = (values.bbox, values.checkpoint, values.mcube_threshold, values.simplify)
        is_changed = values.clean != PIECES or values.watertight or values.is_object
        if is_changed or any(value is not None for value in of_extraction):
            raise UserError(
                "--mesh: is coloured as it is; leave out --bbox, --checkpoint, --clean, --no-clean, --mcube_threshold, "
                "--object, --simplify and --watertight"
            )
    if values.mode in ("render", "compare"):
        return  # for these modes --output is not a mesh
    if values.output is not None and values.mode != "reconstruct":  # which refuses it
        _require_places(values.output, color(values))
    for package, (name, is_given) in PACKAGES.items():
        if is_given(values) and importlib.util.find_spec(package) is None:
            raise UserError(f"{name}: the Python package {package} is missing; run `pip install -r requirements.txt`")


def _require_places(output: Path, wanted: str) -> None:
    """Raises UserError if mesh, material or texture cannot be written, or would replace a foreign file.

    A .png or .mtl without the .obj is foreign, such as a photograph.
    """
    from models.mesh.formats import companions, offset_file

    require_place(output, "--output")
    for path in (*companions(output, wanted), offset_file(output)):
        require_place(path, "--output")
        if os.path.lexists(path) and not os.path.lexists(output):
            raise UserError(f"--output {output}: {path} exists and would be replaced; name another file")


def color(values: argparse.Namespace) -> str:
    """The type of colours of the mesh; raises UserError for a format that does not support it."""
    if values.output is None:
        return values.colour or VERTEX
    from models.mesh.formats import require_format

    return require_format(values.output, values.colour)


def full_request(values: argparse.Namespace) -> MeshRequest:
    """The mesh that the flags describe; raises UserError if it needs more memory than is free."""
    return replace(
        mesh_request(values),
        bbox=None if values.bbox is None else tuple(values.bbox),
        frame=values.frame,
        up=values.up,
        is_refined=values.is_refined,
        clean=values.clean,
        is_object=values.is_object,
        decimate=values.decimate,
        simplify=values.simplify,
        is_watertight=values.watertight,
        color=color(values),
        texture_size=values.texture_size,
        output=values.output,
        mesh_file=values.mesh_file,
    )

"""Which meshes can be asked for, and their files: checked before anything is computed, without any library."""

from __future__ import annotations

import importlib.util
import operator
import os
import re
from pathlib import Path

from data.errors import UserError
from data.io.files import require_place
from data.limits import require_values
from models.requests import NETWORK, NONE, PIECES, TEXTURE, UNIT, VERTEX, MeshRequest

HOLDS = {  # the default first; phones show no vertex colours of USDZ
    ".ply": (VERTEX, NONE),
    ".obj": (VERTEX, TEXTURE, NONE),
    ".glb": (VERTEX, TEXTURE, NONE),
    ".stl": (NONE,),
    ".usdz": (TEXTURE, VERTEX, NONE),
    ".3mf": (VERTEX, NONE),
}


def require_valid(request: MeshRequest) -> None:
    """Raises UserError for wrong values, an empty box, options that exclude each other, a missing package, and a file
    that cannot be written.
    """
    require_values(request)
    if request.bbox is not None and not all(map(operator.lt, request.bbox[:3], request.bbox[3:])):
        raise UserError(
            f"--bbox {' '.join(f'{value:.12g}' for value in request.bbox)}: each of the first three numbers must be "
            "below its counterpart among the last three"
        )
    if request.up is not None and request.frame == UNIT:
        raise UserError("--up: applies only to the world frame; omit --up or --frame unit")
    if request.decimate is not None and request.simplify is not None:
        raise UserError("--decimate, --simplify: one gives the number of triangles, the other the error; give only one")
    for package, name, is_given in (
        ("fast_simplification", "--decimate, --simplify", (request.decimate or request.simplify) is not None),
        ("xatlas", "--colour texture", request.color == TEXTURE),
    ):
        if is_given and importlib.util.find_spec(package) is None:
            raise UserError(f"{name}: the Python package {package} is missing; run `pip install -r requirements.txt`")
    if request.output is not None:
        require_format(request.output, VERTEX if request.color == NETWORK else request.color)
        require_free(request.output, request.color)


def require_source(request: MeshRequest, is_extraction: bool = False) -> None:
    """Raises UserError without a mesh to colour, and for options of an extraction, also if it `is_extraction`."""
    if request.mesh_file is None:
        raise UserError("MeshRequest: mesh_file is missing; name the .ply, .obj, .stl or .glb to colour")
    of_extraction = (request.bbox, request.threshold, request.simplify)
    is_changed = request.clean not in (None, PIECES) or request.is_watertight or request.is_object
    if is_extraction or is_changed or any(value is not None for value in of_extraction):
        raise UserError(
            "--mesh: is coloured as it is; leave out --bbox, --checkpoint, --clean, --no-clean, --mcube_threshold, "
            "--object, --simplify and --watertight"
        )


def require_format(path: Path, color: str | None) -> str:
    """The colour of the file: the requested one, or for None the default of the format.

    Raises UserError for a suffix that is not in HOLDS, and for a format that does not support the requested colour.
    """
    suffix = path.suffix.lower()
    if suffix not in HOLDS:
        raise UserError(f"--output {path}: a mesh file must end in one of {', '.join(HOLDS)}")
    if color is None:
        return HOLDS[suffix][0]
    if color not in HOLDS[suffix]:
        able = " or ".join(other for other, held in HOLDS.items() if color in held)
        raise UserError(f"--output {path}: {suffix} cannot hold --colour {color}; write {able}, or --colour none")
    return color


def companions(path: Path, color: str) -> list[Path]:
    """Further files of a mesh at `path`: material and texture, whose names readers take for one word of an OBJ."""
    if path.suffix.lower() != ".obj" or color != TEXTURE:
        return []
    stem = re.sub(r"^-|[\s#]", "_", path.stem)  # an option, blanks, a comment
    return [path.with_name(stem + suffix) for suffix in (".mtl", ".png")]


def offset_file(path: Path) -> Path:
    """The file beside a GLB, STL, USDZ or 3MF that records its offset."""
    return path.with_name(f"{path.name}.json")


def require_free(output: Path, wanted: str) -> None:
    """Raises UserError if mesh, material or texture cannot be written, or would replace a foreign file.

    A .png or .mtl without the .obj is foreign, such as a photograph.
    """
    require_place(output, "--output")
    for path in (*companions(output, wanted), offset_file(output)):
        require_place(path, "--output")
        if os.path.lexists(path) and not os.path.lexists(output):
            raise UserError(f"--output {output}: {path} exists and would be replaced; name another file")

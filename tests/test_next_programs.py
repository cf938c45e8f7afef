"""The table of docs/usage.md: what the next programs read of a mesh file, in metres and with z up in its scene.

Each program that is installed reads every format; the others are skipped, and so are other versions of them.
"""

import json
import re
import shutil
import struct
import subprocess
import zipfile
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import numpy as np
import pytest
import trimesh
from pages import TEXTS

from data.parsed_scene import WorldFrame
from models.mesh.mesh import About, Surface, file_axes, surface_to_world, write_surface
from models.mesh.output import HOLDS
from models.requests import NONE, TEXTURE, VERTEX

SIZE, UP, COLOURS, PICTURE = "size", "up", "colours", "texture"
NOT_READ = "not read"
NAME = "my jug"  # in a folder with a blank, too
SHAPE = trimesh.creation.cone(0.03, 0.155, sections=24)  # metres, tip up
RGB = np.random.default_rng(0).integers(0, 256, (len(SHAPE.vertices), 3)).astype(np.uint8)
UV = np.random.default_rng(1).uniform(0, 1, (len(SHAPE.vertices), 2)).astype(np.float32)
IMAGE = np.random.default_rng(2).integers(0, 256, (16, 24, 3)).astype(np.uint8)
METRIC = WorldFrame("the floor of the points", "4 markers of 0.03 m", 0.001)


def write(folder, suffix, color):
    axes = file_axes(suffix, METRIC, None, None)
    normals = SHAPE.vertex_normals.astype(np.float32)
    surface = Surface(SHAPE, normals, RGB if color == VERTEX else None)
    if color == TEXTURE:
        surface = Surface(SHAPE, normals, None, UV, IMAGE)
    path = folder / "of today" / f"{NAME}{suffix}"
    write_surface(surface_to_world(surface, axes.change), path, About("world", axes.units, axes.up, 300, "a & b.conf"))
    return path


def srgb(linear):
    """0 to 255, of linear light in [0, 1]."""
    linear = np.asarray(linear, dtype=float)
    return 255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def properties(vertices, rgb, metres, up):
    """What of SHAPE the vertices [N, 3] and their colours have; metres: of their unit, up: its axis."""
    vertices = np.asarray(vertices) * metres
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    found = {SIZE} if np.allclose(sorted(high - low), sorted(SHAPE.extents), rtol=1e-4) else set()
    tips = vertices[np.ptp([vertices[:, up], np.full(len(vertices), high[up])], axis=0) < 1e-6]
    found |= {UP} if np.isclose(high[up] - low[up], 0.155, rtol=1e-4) and np.ptp(tips, axis=0).max() < 1e-6 else set()
    if rgb is None or len(rgb) != len(vertices):
        return found
    order = [0, 2, 1] if up == 1 else [0, 1, 2]
    at = vertices[:, order] * ([1, -1, 1] if up == 1 else [1, 1, 1])
    distances = np.linalg.norm(at[:, None] - SHAPE.vertices, axis=2)
    return found | ({COLOURS} if np.abs(rgb - RGB[distances.argmin(axis=1)].astype(float)).max() <= 10 else set())


def by_trimesh(path, color):
    suffix = path.suffix
    if suffix == ".3mf":
        pytest.importorskip("lxml")  # its reader needs it
    try:
        scene = trimesh.load_scene(path, process=False)
    except (ValueError, NotImplementedError):
        return NOT_READ
    (mesh,) = scene.geometry.values()
    millimetres = suffix == ".stl" or "milli" in (scene.units or "")
    rgb, look = None, mesh.visual
    if "color" in getattr(look, "vertex_attributes", {}):
        rgb = srgb(look.vertex_attributes["color"][:, :3] / 255)
    elif look.kind == "vertex":
        rgb = look.vertex_colors[:, :3]
    found = properties(mesh.vertices, rgb, 0.001 if millimetres else 1.0, 1 if suffix in (".glb", ".obj") else 2)
    material = getattr(look, "material", None)
    image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
    return found | ({PICTURE} if image is not None and image.size == IMAGE.shape[1::-1] else set())


def by_assimp(path, color):
    out = path.parent / "out.ply"
    ran = subprocess.run(["assimp", "export", path, out], capture_output=True, text=True)
    if "No suitable reader" in ran.stdout:
        return NOT_READ
    mesh = trimesh.load(out, process=False)
    rgb = mesh.visual.vertex_colors[:, :3] if mesh.visual.kind == "vertex" else None
    if rgb is not None and path.suffix == ".glb":
        rgb = srgb(rgb / 255)
    unit = 0.001 if path.suffix in (".stl", ".3mf") else 1.0
    found = properties(mesh.vertices, rgb, unit, 1 if path.suffix in (".glb", ".obj") else 2)
    told = subprocess.run(["assimp", "info", path], capture_output=True, text=True).stdout
    return found | ({PICTURE} if "$tex.file" in told else set())


@cache
def contents_in_blender():
    """What Blender, started once, reads of each format and kind of colours."""
    files, script = {}, Path(__file__).with_name("blender_reads.py")
    with TemporaryDirectory() as folder:
        for suffix, colors in HOLDS.items():
            for color in colors:
                path = write(Path(folder) / color, suffix, color)
                files[suffix, color] = path, path.with_name(f"{suffix}.json")
        given = [path for pair in files.values() for path in pair]
        subprocess.run(["blender", "--background", "--python", script, "--", *given], capture_output=True, check=True)
        return {key: json.loads(out.read_text()) for key, (_, out) in files.items()}


def by_blender(path, color):
    content = contents_in_blender()[path.suffix, color]
    if "No module named" in content["error"]:
        pytest.skip("an importer of this Blender lacks a package")
    if content["error"]:
        return NOT_READ
    rgb = None if "colors" not in content else 255 * np.array(content["colors"])
    found = properties(content["vertices"], rgb, 0.001 if path.suffix == ".stl" else 1.0, 2)
    return found | ({PICTURE} if content["images"] == [list(IMAGE.shape[1::-1])] else set())


def by_usd(path, color):
    if path.suffix != ".usdz":
        return NOT_READ
    from pxr import Sdf, Usd, UsdGeom, UsdShade, UsdValidation

    stage = Usd.Stage.Open(str(path))
    checks = UsdValidation.ValidationContext(UsdValidation.ValidationRegistry().GetOrLoadAllValidators())
    assert checks.Validate(stage) == []
    mesh = UsdGeom.Mesh(stage.GetPrimAtPath("/Object/Surface"))
    linear = UsdGeom.PrimvarsAPI(mesh).GetPrimvar("displayColor").Get()
    rgb = None if linear is None else srgb(linear)
    up = "XYZ".index(UsdGeom.GetStageUpAxis(stage))
    found = properties(mesh.GetPointsAttr().Get(), rgb, UsdGeom.GetStageMetersPerUnit(stage), up)
    material = UsdShade.MaterialBindingAPI(mesh).ComputeBoundMaterial()[0]
    files = Sdf.ZipFile.Open(str(path)).GetFileNames()
    return found | ({PICTURE} if material and files == ["mesh.usda", "texture.png"] else set())


def version_of(program):
    """The version of an installed program or package; "" without it."""
    if program == "trimesh":
        return trimesh.__version__
    if program == "usd-core":
        return metadata.version(program) if find_spec("pxr") else ""
    command = {"Blender": ["blender", "--version"], "assimp": ["assimp", "version"]}[program]
    if shutil.which(command[0]) is None:
        return ""
    printed = subprocess.run(command, capture_output=True, text=True).stdout
    return re.search(r"(?:Blender|Version) (\d+\.\d+)", printed)[1]


READERS = {"trimesh": by_trimesh, "assimp": by_assimp, "Blender": by_blender, "usd-core": by_usd}
TABLE = TEXTS["docs/usage.md"].partition("\n| file |")[2].partition("\n\n")[0]
HEAD, _, *CELLS = (
    [cell.strip(" `") for cell in f"| file |{TABLE}".splitlines()[row].strip("|").split("|")]
    for row in range(2 + len(HOLDS))
)
ROWS = {row[0]: row for row in CELLS}


def test_the_table_has_every_format_and_program():
    assert list(ROWS) == list(HOLDS)
    assert [title.split()[0] for title in HEAD[2:]] == list(READERS)


@pytest.mark.parametrize("suffix", HOLDS)
@pytest.mark.parametrize("title", HEAD[2:])
def test_a_program_reads_what_the_page_says(title, suffix, tmp_path):
    program, version = title.split()
    if not version_of(program).startswith(version):
        pytest.skip(f"{title} is not installed")
    found = [
        READERS[program](write(tmp_path, suffix, color), color)
        for color in HOLDS[suffix]
        if color != NONE or suffix == ".stl"
    ]
    if NOT_READ in found:
        assert ROWS[suffix][HEAD.index(title)] == NOT_READ
        return
    names = {name for read in found for name in read}
    assert ROWS[suffix][HEAD.index(title)] == ", ".join(name for name in (SIZE, UP, COLOURS, PICTURE) if name in names)


def test_the_files_of_a_usdz_are_aligned_and_not_compressed(tmp_path):
    path = write(tmp_path, ".usdz", TEXTURE)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["mesh.usda", "texture.png"]
        for entry in archive.infolist():
            start = entry.header_offset + 30 + sum(struct.unpack_from("<HH", content, entry.header_offset + 26))
            assert start % 64 == 0 and content[start : start + entry.file_size] == archive.read(entry)
        layer = archive.read("mesh.usda").decode()
    assert 'upAxis = "Y"' in layer and "metersPerUnit = 1\n" in layer and 'string conf = "a & b.conf"' in layer
    assert content == write(tmp_path, ".usdz", TEXTURE).read_bytes()  # no time in it
    far = Surface(trimesh.Trimesh(SHAPE.vertices + [512400.3, 4650000.7, 315.7], SHAPE.faces, process=False))
    write_surface(far, path, About("world", "metres", "y, GPS", 1, "c"))
    (words,) = re.findall(r"xformOp:translate = \((.*)\)", zipfile.ZipFile(path).read("mesh.usda").decode())
    assert np.allclose([float(word) for word in words.split(",")], far.mesh.vertices.mean(axis=0), atol=1)
    assert path.with_name(f"{path.name}.json").is_file()


def test_a_3mf_has_millimetres_and_the_colours_of_its_vertices(tmp_path):
    with zipfile.ZipFile(write(tmp_path, ".3mf", VERTEX)) as archive:
        assert archive.namelist() == ["[Content_Types].xml", "_rels/.rels", "3D/3dmodel.model"]
        model = ElementTree.fromstring(archive.read("3D/3dmodel.model"))
    assert model.get("unit") == "millimeter"
    points, triangles, colors = (model.findall(f".//{{*}}{name}") for name in ("vertex", "triangle", "color"))
    vertices = np.array([[float(point.get(axis)) for axis in "xyz"] for point in points])
    assert np.allclose(vertices, 1000 * SHAPE.vertices, atol=1e-4) and len(triangles) == len(SHAPE.faces)
    for triangle, face in zip(triangles, SHAPE.faces, strict=True):
        assert [int(triangle.get(f"v{corner}")) for corner in (1, 2, 3)] == list(face)
        for corner in (1, 2, 3):
            color = colors[int(triangle.get(f"p{corner}"))].get("color")
            assert color == "#{:02X}{:02X}{:02X}".format(*RGB[face[corner - 1]])

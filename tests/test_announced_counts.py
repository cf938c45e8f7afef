"""Files with less than they announce, and with counts that cannot be: rejected in one sentence, soon."""

import contextlib
import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hostile import bundler, ended_soon, read_scene
from trimesh.creation import icosphere

from data.errors import SceneError, UserError
from data.scenes.readers.points import read_dtu
from models.checkpoints.splat_ply import to_checkpoint
from models.conf import load_config
from models.mesh.mesh import read_mesh
from models.training.checkpoint import CheckpointError

ROOT = Path(__file__).resolve().parents[1]
MESH = icosphere(1)
TEXT = MESH.export(file_type="ply", encoding="ascii")
SOLID = MESH.export(file_type="stl_ascii").encode()
OBJ = b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n"


def glb(change, mesh=MESH):
    whole = mesh.export(file_type="glb")
    length = struct.unpack_from("<I", whole, 12)[0]
    tree, rest = json.loads(whole[20 : 20 + length]), whole[20 + length :]
    change(tree)
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    return whole[:8] + struct.pack("<II", 20 + len(text) + len(rest), len(text)) + whole[16:20] + text + rest


MESHES = {
    "text cut between rows": ("ply", TEXT[: 3 * len(TEXT) // 4].rpartition(b"\n")[0] + b"\n"),
    "text cut in a row": ("ply", TEXT.rstrip().rpartition(b" ")[0]),
    "fewer than none": ("ply", TEXT.replace(b"element face 80", b"element face -1")),
    "cells of a thousand digits": ("ply", TEXT.replace(b"element face 80", b"element face " + b"9" * 5000)),
    "the second solid cut": ("stl", SOLID + SOLID[: len(SOLID) // 2]),
    "index 0": ("obj", OBJ + b"f 0 1 2\n"),
    "index beyond": ("obj", OBJ + b"f 1 2 4\n"),
    "a corner missing": ("obj", OBJ + b"f 1 2"),
    "a coordinate missing": ("obj", b"v 0 0\n" + OBJ),
    "more than the file": ("glb", glb(lambda tree: tree["accessors"].append({**tree["accessors"][0], "count": 10**9}))),
    "cut": ("glb", glb(lambda tree: None)[:-100]),
}


@pytest.mark.parametrize("case", MESHES)
def test_a_mesh_with_less_than_it_announces_is_rejected(case, tmp_path):
    kind, content = MESHES[case]
    (tmp_path / f"a.{kind}").write_bytes(content)
    with ended_soon(), pytest.raises(UserError):
        read_mesh(tmp_path / f"a.{kind}")


@pytest.mark.parametrize(("kind", "content"), [("ply", TEXT), ("stl", SOLID), ("glb", glb(lambda tree: None))])
def test_whole_meshes_are_read(kind, content, tmp_path):
    (tmp_path / f"a.{kind}").write_bytes(content)
    assert len(read_mesh(tmp_path / f"a.{kind}").faces) == len(MESH.faces)


def test_many_solids_and_materials_are_one_mesh(tmp_path):
    groups = b"".join(b"usemtl m%d\ng x\nf 1 2 3\n" % number for number in range(20000))
    for kind, content in (("stl", SOLID * 300), ("obj", OBJ + groups)):
        (tmp_path / f"a.{kind}").write_bytes(content)
        with ended_soon():
            assert len(read_mesh(tmp_path / f"a.{kind}").faces) in (300 * len(MESH.faces), 20001)


@pytest.mark.parametrize(
    ("points", "count"), [("0 0 0\n1 2 3\n-2\n", 10**12), ("0 0 0\n1 2 3\n0\n", -1), ("0 0 0\n1 2 3\nnan\n", 1)]
)
def test_a_bundle_with_impossible_counts(points, count, tmp_path):
    bundler(tmp_path, points, n_points=count)
    with ended_soon(), pytest.raises(SceneError, match="truncated or damaged"):
        read_scene(tmp_path)


def splats(kind, **counts):
    names = ["x", "y", "z", *(f"f_dc_{k}" for k in range(3)), "opacity", *(f"scale_{k}" for k in range(3))]
    names += [f"rot_{k}" for k in range(4)]
    properties = "".join(f"property float {name}\n" for name in names)
    head = f"ply\nformat {kind} 1.0\nelement vertex {counts.get('count', 2)}\n{properties}end_header\n"
    values = np.linspace(0.1, 1, 28, dtype="<f4").reshape(2, 14)
    rows = "".join(" ".join(map(str, row)) + "\n" for row in values).encode()
    return head.encode() + (rows if kind == "ascii" else values.tobytes())


def test_gaussians_of_a_text_are_those_of_a_binary_file(tmp_path):
    conf, path = load_config(ROOT / "confs/gaussians.conf", "x").model.gaussians, tmp_path / "a.ply"
    found = []
    for kind in ("ascii", "binary_little_endian"):
        path.write_bytes(splats(kind))
        found.append(to_checkpoint(path, conf, np.eye(4), 3).tensors["splats"])
    for name, values in found[0].items():
        np.testing.assert_allclose(values, found[1][name], rtol=1e-5)
    for count in (3, -1):
        path.write_bytes(splats("ascii", count=count))
        with pytest.raises(CheckpointError):
            to_checkpoint(path, conf, np.eye(4), 3)


def test_a_damaged_matrix_of_the_dtu_evaluation_ends_no_process(tmp_path):
    """scipy's reader ended the process for some of these."""
    folder, content = tmp_path / "scans", io.BytesIO()
    for name in ("ObsMask", "Points/stl"):
        (folder / name).mkdir(parents=True)
    (folder / "Points/stl/stl001_total.ply").write_bytes(TEXT)
    scipy.io.savemat(folder / "ObsMask/Plane1.mat", {"P": np.arange(4.0)})
    scipy.io.savemat(content, {"ObsMask": np.arange(24).reshape(2, 3, 4), "BB": np.eye(2, 3), "Res": 0.5})
    whole, path = content.getvalue(), folder / "ObsMask/ObsMask1_10.mat"
    path.write_bytes(whole)
    assert (read_dtu(folder, 1).observed == (np.arange(24).reshape(2, 3, 4) > 0)).all()
    for at in range(128, len(whole), 3):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        with contextlib.suppress(SceneError):
            read_dtu(folder, 1)

"""Files that announce more than they have, that never end, and that make a library fail: one sentence, soon."""

import ast
import contextlib
import io
import json
import os
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from checkpoint_samples import make_checkpoint
from trimesh.creation import icosphere

from data.errors import SceneError, UserError
from data.io.headers import read_exif
from data.io.images import image_size, natural_key, write_image
from data.io.named_files import named_file
from data.io.untrusted import read_xml
from data.scenes.config import DatasetConfig
from data.scenes.readers import READERS, recognise
from data.scenes.readers.colmap_files import NUMBER
from data.scenes.readers.neus import read_frame
from data.scenes.readers.points import read_dtu
from models.checkpoints.ours import CheckpointError, encoded, load_checkpoint
from models.checkpoints.splat_ply import to_checkpoint
from models.checkpoints.torch_archive import read_torch_checkpoint
from models.commands.arguments import NEGATIVE_NUMBER
from models.commands.reconstruction_folder import PLAN, read_plan
from models.config.hocon import parse_tree
from models.config.strict import ConfigError
from models.mesh.mesh import read_mesh
from models.methods.conf import load_config
from models.plan import PLAN_KEY, TrainingPlan, as_state, of_state
from models.results.ground_truth import read_ground_truth

ROOT = Path(__file__).resolve().parents[1]
MESH = icosphere(1)


@contextlib.contextmanager
def ended_soon():
    """The body ends; ten seconds are a thousand times what it takes."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# one function opens every input

OPENERS = ("open", "read_bytes", "read_text", "fromfile", "loadtxt", "genfromtxt", "loadmat", "imread")
# What is not an input: files of the program and of the machine.
OF_THE_PROGRAM = {
    "data/io/clock.py", "data/io/lock.py", "data/io/streams.py", "models/commands/reconstruction_ahead.py",
    "models/commands/machine_checks/system.py", "models/config/program.py",
    "models/ops/source.py", "models/results/report/document.py", "models/viewer/scene_display.py",
}  # fmt: skip
OWN_OPENS = ("Database", "grid", "_region", "archive", "self", "Image")  # methods of this name that open no path


def opening_lines(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = ast.unparse(node.func).rpartition(".")[0].rpartition(".")[2]
            opens_descriptor = name == "open" and node.args and "open_regular" in ast.unparse(node.args[0])
            if name in OPENERS and owner not in OWN_OPENS and not opens_descriptor:
                found.append(node.lineno)
    return found


def test_one_function_opens_every_input():
    paths = [*ROOT.glob("data/**/*.py"), *ROOT.glob("models/**/*.py")]
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    others = {name for name in names if name.startswith(("data/demo/", "models/machine/"))} | OF_THE_PROGRAM
    found = {name: lines for name, path in names.items() if name not in others and (lines := opening_lines(path))}
    assert set(found) == {"data/io/files.py", "models/training/logger.py"}  # the latter has opened to write


def bundler(folder, points="0 0 0\n1 2 3\n0\n", names="a.png 0 20.5\nb.png\n", n_points=1):
    (folder / "images").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        write_image(folder / "images" / name, np.zeros((16, 20, 3), np.uint8))
    cameras = "20 0 0\n1 0 0\n0 1 0\n0 0 1\n0 0 -3\n" * 2
    (folder / "bundle.out").write_text(f"# Bundle file v0.3\n2 {n_points}\n{cameras}{points}")
    (folder / "list.txt").write_text(names)


def read_scene(folder):
    return READERS[recognise(folder)].read(folder, DatasetConfig(str(folder), "cameras_sphere.npz", "x.npz"))


READS = {
    "bundle.out": lambda path: read_scene(path.parent),
    "a.ply": read_mesh,
    "b.ply": lambda path: read_ground_truth(path, "--gt", None),
    "a.pth": read_torch_checkpoint,
    "a.safetensors": load_checkpoint,
    "a.conf": load_config,
    "a.png": image_size,
    "a.xmp": lambda path: read_xml(path, "x", "y"),
}


@pytest.mark.parametrize("name", READS)
def test_a_pipe_and_a_device_without_an_end_are_rejected_at_once(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with ended_soon(), pytest.raises(UserError):
        READS[name](tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with ended_soon(), pytest.raises(UserError):
        READS[name](tmp_path / name)


def test_the_record_of_an_offset_that_is_a_pipe(tmp_path):
    (tmp_path / "a.stl").write_bytes(MESH.export(file_type="stl"))
    os.mkfifo(tmp_path / "a.stl.json")
    with ended_soon():
        assert len(read_mesh(tmp_path / "a.stl").faces) == len(MESH.faces)
    far = b"mesh less an offset, ".ljust(80) + MESH.export(file_type="stl")[80:]
    (tmp_path / "a.stl").write_bytes(far)
    with ended_soon(), pytest.raises(UserError, match="is not a regular file"):
        read_mesh(tmp_path / "a.stl")


# announced counts

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


def of_views(**values):
    return glb(lambda tree: [view.update(values) for view in tree["bufferViews"]])


def of_accessors(**values):
    return glb(lambda tree: [one.update(values) for one in tree["accessors"]])


def crowd(tree):
    tree["nodes"] += [{"mesh": 0}] * 2000
    tree["scenes"][0]["nodes"] = list(range(len(tree["nodes"])))


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
    "negative length": ("glb", of_views(byteLength=-36)),
    "negative offset": ("glb", of_views(byteOffset=-36)),
    "negative count": ("glb", of_accessors(count=-1)),
    "negative count and stride": ("glb", of_views(byteStride=12)[:0] or of_accessors(count=-2, byteOffset=0)),
    "view beyond the file": ("glb", of_views(byteLength=10**9)),
    "more than the file": ("glb", glb(lambda tree: tree["accessors"].append({**tree["accessors"][0], "count": 10**9}))),
    "one mesh a thousand times": ("glb", glb(crowd, icosphere(3))),
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


# time that does not depend on the numbers in a file


def directory(entries, following):
    rows = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return struct.pack("<H", len(entries)) + rows + struct.pack("<I", following)


SIDES, TIFF = [(256, 4, 1, 64), (257, 4, 1, 32)], b"II*\0\x08\0\0\0"
MANY_TAGS = TIFF + directory([*SIDES, *((tag, 7, 2_000_000, 8) for tag in range(400, 60000))], 0) + bytes(2_000_000)
EXIF = b"Exif\0\0" + TIFF + directory([(0x8769, 4, 1, 8), (0x8825, 4, 1, 8), (0x112, 3, 1, 6)], 0)
PICTURES = {
    "circle.tif": TIFF + directory(SIDES, 8),
    "tags.tif": MANY_TAGS,
    "fill.jpg": b"\xff\xd8" + b"\xff" * 20_000_000,
    "junk.jpg": b"\xff\xd8\xff\xe0\0\2" + b"x" * 20_000_000,
    "blocks.jpg": b"\xff\xd8" + 3000 * (b"\xff\xe1\xff\xff" + EXIF.ljust(65533, b"\0")),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_tags_of_a_photograph_are_read_in_bounded_time(name, tmp_path):
    (tmp_path / name).write_bytes(PICTURES[name])
    with ended_soon():
        assert read_exif(tmp_path / name)[1] is None
    with ended_soon():
        try:
            assert image_size(tmp_path / name) == (64, 32)
        except UserError:
            assert name != "tags.tif"


@pytest.mark.parametrize("word", ["1" * 100_000 + "x", "9" * 100_000 + "." + "9" * 100_000 + "e"])
def test_numbers_are_matched_in_linear_time(word):
    with ended_soon():
        assert not NUMBER.fullmatch(word) and not NEGATIVE_NUMBER.match("-" + word)


def test_a_long_line_of_a_list_is_read(tmp_path):
    bundler(tmp_path, names="a.png" + 300_000 * " " + "0 20.5\nb.png" + 300_000 * " " + "x\n")
    with ended_soon(), pytest.raises(SceneError, match="1 of 2 photographs are missing"):
        read_scene(tmp_path)


def test_names_that_no_file_has(tmp_path):
    with ended_soon():
        for name in ("a/" * 1_000_000 + "b", "9" * 5000 + "/a.png", "x" * 5000, "\0/a"):
            assert named_file(tmp_path, name) is None
    names = ["9" * 5000, "10.png", "9.png"]
    assert [path.name for path in sorted(map(Path, names), key=natural_key)] == ["9.png", "10.png", "9" * 5000]


# what a library raises


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
def test_a_document_type_is_rejected_in_any_encoding(encoding, tmp_path):
    text = f'<?xml version="1.0" encoding="{encoding[:6]}"?>{{}}<a b="&lt;!DOCTYPE">&b;</a>'
    (tmp_path / "a.xmp").write_bytes(text.format('<!DOCTYPE a [<!ENTITY b "c">]>').encode(encoding))
    with pytest.raises(SceneError, match="declares a document type"):
        read_xml(tmp_path / "a.xmp", "x", "export it again")
    (tmp_path / "a.xmp").write_bytes(text.format("<!-- <!DOCTYPE a> -->").replace("&b;", "").encode(encoding))
    assert read_xml(tmp_path / "a.xmp", "x", "y").get("b") == "<!DOCTYPE"


@pytest.mark.parametrize("value", ["99999999999999999 ms", "99999999999999999999 milliseconds"])
def test_a_duration_that_overflows(value):
    with pytest.raises(ConfigError):
        parse_tree(f"a = {value}", "x")


def test_numbers_of_a_thousand_digits(tmp_path):
    (tmp_path / "frame.json").write_text(json.dumps({"scale_error": 10**1000}))
    with pytest.raises(SceneError, match="is damaged"):
        read_frame(tmp_path / "frame.json")


PLAN_CHANGES = {
    "exposure": [None, {"value": None}, {"value": "no"}, {"value": True, "reason": 3}, {"value": False, "x": 1}],
    "masks": ["given", {"value": "some"}, {"value": 1}, []],
    "prune_from": [{"value": "early"}, {"value": 1e999}],
    "radius": ["wide", None],
    "sky": [[1, 2], 3, ["a", "b", "c"]],
    "rows": [3, [["a"]], [[1, 2]]],
    "unused": [[1], None],
    "more": [1],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in PLAN_CHANGES.items() for value in values])
def test_a_plan_of_wrong_types_is_rejected_when_the_checkpoint_is_read(key, value, tmp_path):
    whole, path = json.loads(json.dumps(as_state(TrainingPlan()))), tmp_path / "ckpt_000003.safetensors"
    assert of_state(whole).exposure == TrainingPlan().exposure
    checkpoint = make_checkpoint()
    path.write_bytes(encoded(type(checkpoint)(**{**vars(checkpoint), "state": {PLAN_KEY: {**whole, key: value}}})))
    with pytest.raises(CheckpointError, match="the plan in its state is invalid"):
        load_checkpoint(path)


GOOD_PLAN = {"minutes": 10.0, "settings": {"train.end_iter": "100"}, "seconds_per_step": 0.1, "times": {}}
SPENT = {"wall": 1.0, "processor": 0.0}


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {}},
        *({"settings": {"train.end_iter": text}} for text in ("abc", "1e3", "-5", "0")),
        *({"minutes": number} for number in (1e308, float("nan"), "10", 10**400)),
        *({"times": {"training": {**SPENT, "wall": value}}} for value in (float("inf"), "1", None)),
        {"longest": 1e300},
        {"times": []},
    ],
    ids=str,
)
def test_a_damaged_record_of_a_reconstruction(change, tmp_path):
    (tmp_path / PLAN).write_text(json.dumps({**GOOD_PLAN, "times": {"training": SPENT}}))
    assert read_plan(tmp_path) is not None
    (tmp_path / PLAN).write_text(json.dumps({**GOOD_PLAN, **change}))
    with pytest.raises(UserError, match="is damaged"):
        read_plan(tmp_path)

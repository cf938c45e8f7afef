"""Files that announce more than they have, that never end, and that make a library fail: one sentence, soon."""

import ast
import json
import os
import struct
from pathlib import Path

import pytest
from checkpoint_samples import make_checkpoint
from hostile import bundler, ended_soon, read_scene
from trimesh.creation import icosphere

from data.errors import SceneError, UserError
from data.io.images import image_size, natural_key
from data.io.metadata import read_exif
from data.io.named_files import named_file
from data.io.untrusted import read_xml
from data.scenes.readers.colmap import NUMBER
from data.scenes.readers.neus import read_frame
from models.checkpoints.ours import encoded, load_checkpoint
from models.checkpoints.published import read_torch_checkpoint
from models.commands.arguments import NEGATIVE_NUMBER
from models.commands.reconstruction_plan import PLAN_FILE, read_plan
from models.conf import load_config
from models.config.hocon import parse_tree
from models.config.strict import ConfigError
from models.mesh.mesh import read_mesh
from models.plan import PLAN_KEY, TrainingPlan, plan_from_state
from models.results.surface_metrics import read_ground_truth
from models.training.checkpoint import CheckpointError

ROOT = Path(__file__).resolve().parents[1]
MESH = icosphere(1)


# one function opens every input

OPENERS = ("open", "read_bytes", "read_text", "fromfile", "loadtxt", "genfromtxt", "loadmat", "imread")
# What is not an input: files of the program and of the machine.
OF_THE_PROGRAM = {
    "data/io/clock.py", "data/io/lock.py", "data/io/streams.py", "models/commands/reconstruction.py",
    "models/commands/doctor.py", "models/config/program.py",
    "models/ops/source.py", "models/ops/together.py", "models/results/report/document.py",
    "models/viewer/scene_display.py",
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
    assert set(found) == {"data/io/files.py", "models/runs/logger.py"}  # the latter has opened to write


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


def test_values_of_a_glb_without_bytes(tmp_path):
    content = MESH.export(file_type="glb")
    size = int.from_bytes(content[12:16], "little")
    document = json.loads(content[20 : 20 + size])
    del document["accessors"][0]["bufferView"]
    document["accessors"][0]["count"] = 10**9
    changed = json.dumps(document, separators=(",", ":")).encode().ljust(size)
    (tmp_path / "a.glb").write_bytes(content[:20] + changed + content[20 + size :])
    with pytest.raises(UserError, match="values without data"):
        read_mesh(tmp_path / "a.glb")


def test_the_record_of_an_offset_that_is_a_pipe(tmp_path):
    (tmp_path / "a.stl").write_bytes(MESH.export(file_type="stl"))
    os.mkfifo(tmp_path / "a.stl.json")
    with ended_soon():
        assert len(read_mesh(tmp_path / "a.stl").faces) == len(MESH.faces)
    far = b"mesh less an offset, ".ljust(80) + MESH.export(file_type="stl")[80:]
    (tmp_path / "a.stl").write_bytes(far)
    with ended_soon(), pytest.raises(UserError, match="is not a regular file"):
        read_mesh(tmp_path / "a.stl")


# time that does not depend on the numbers in a file


def directory(entries, following):
    rows = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return struct.pack("<H", len(entries)) + rows + struct.pack("<I", following)


SIDES, TIFF = [(256, 4, 1, 64), (257, 4, 1, 32)], b"II*\0\x08\0\0\0"


def test_directories_that_form_a_circle_are_read_once(tmp_path):
    (tmp_path / "circle.tif").write_bytes(TIFF + directory(SIDES, 8))
    with ended_soon():
        assert read_exif(tmp_path / "circle.tif") == (1, None)
        assert image_size(tmp_path / "circle.tif") == (64, 32)


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
    "smooth": [{"value": -1}, {"value": 33}, {"value": True}, {"value": 0.5}],
    "radius": ["wide", None],
    "sky": [[1, 2], 3, ["a", "b", "c"]],
    "rows": [3, [["a"]], [[1, 2]]],
    "unused": [[1], None],
    "more": [1],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in PLAN_CHANGES.items() for value in values])
def test_a_plan_of_wrong_types_is_rejected_when_the_checkpoint_is_read(key, value, tmp_path):
    whole, path = json.loads(json.dumps(TrainingPlan().state())), tmp_path / "ckpt_000003.safetensors"
    assert plan_from_state(whole).exposure == TrainingPlan().exposure
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
        *({"longest": value} for value in (1e300, "", [], 1.5, 0)),
        {"seconds_per_step": ""},
        {"times": []},
    ],
    ids=str,
)
def test_a_damaged_record_of_a_reconstruction(change, tmp_path):
    (tmp_path / PLAN_FILE).write_text(json.dumps({**GOOD_PLAN, "times": {"training": SPENT}}))
    assert read_plan(tmp_path) is not None
    (tmp_path / PLAN_FILE).write_text(json.dumps({**GOOD_PLAN, **change}))
    with pytest.raises(UserError, match="is damaged"):
        read_plan(tmp_path)

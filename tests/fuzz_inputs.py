"""What the readers are fed by tests/fuzzing.py: strategies for good, damaged and odd inputs of each kind."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from bad_input_builders import BREAKING, CONF, FORGED, GOOD_STATE, broken_streams, header, npy
from checkpoint_samples import make_checkpoint
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save
from synthetic_scene import write_scene
from torch_files import SMALL, legacy_file, zip_file

from models.checkpoints.ours import digest_of, encoded
from models.methods.conf import known_leaves

ROOT = Path(__file__).resolve().parents[1]


@st.composite
def damaged(draw: st.DrawFn, *wholes: bytes) -> bytes:
    """One of `wholes` with a few bytes replaced, inserted, removed or repeated, and perhaps cut short."""
    data = draw(st.sampled_from(wholes))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 8))
        data = data[:start] + draw(st.binary(max_size=8) | st.just(data[start : start + 40])) + data[start + length :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 3)) == 0 else data


FLOAT = st.floats()


def arrays(kind: str, **sides: int) -> st.SearchStrategy[np.ndarray]:
    """Arrays of one dtype, scalars included."""
    return hnp.arrays(kind, hnp.array_shapes(min_dims=0, **sides))


# conf: words of the language in any order, and whole confs with lines changed
WORDS = [*'{}[]=:,\n"$\\#/+. ', '"""', "${", "${a}", "${?a}", "+=", "//", "\x00", "\ud7ff", "\u2028", "é"]
WORDS += ["include ", "url(", "package(", "required(", "file(", '"x.conf"', '"http://127.0.0.1:9/"', "${train}"]
WORDS += ["a", "a.b", "general", "train", "model { nerf {", "null", "true", "1", "-1e3", "1e999"]
WORDS += ["5 days", "CASE_NAME", "${case}"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=25).map("".join) | st.text(max_size=40)
VALUES = TEXTS | st.integers().map(str) | FLOAT.map(str)
ASSIGNMENTS = st.tuples(st.sampled_from(sorted(known_leaves())) | TEXTS, VALUES).map("=".join)
CONFS = TEXTS | TEXTS.map(lambda text: CONF + "\n" + text) | ASSIGNMENTS.map(lambda text: CONF + "\n" + text)
OVERRIDES = st.just([]) | st.lists(ASSIGNMENTS | TEXTS, max_size=2)
CASES = st.sampled_from(["", "", "", "a", "${a}", "..", "\x00"]) | st.text(max_size=4)
CONFS |= damaged(CONF.encode()).map(lambda data: data.decode("utf-8", "replace"))


# flags
FLAGS = ["--mode", "--conf", "--case", "--set", "--seed", "--is_continue", "--checkpoint", "--resolution", "--image"]
FLAGS += ["--mcube_threshold", "--resolution_level", "--device", "--gpu", "--overwrite", "--", "-", "-h=", "@x"]
ARGUMENTS = st.sampled_from([*FLAGS, "train", "interpolate_0_5", "interpolate_", "cpu"]) | st.text(max_size=8)
PAIRS = [["--mode", "evaluate"], ["--image", "3"], ["--seed", "0"], ["--set", "a"], ["--case", ""], ["--is_continue"]]
GOOD_FLAGS = st.lists(st.sampled_from(PAIRS), max_size=4).map(lambda pairs: [word for pair in pairs for word in pair])


# scenes: any arrays, any headers, any bytes
def _scene_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        write_scene(Path(name), n_views=2, size=(6, 8))
        return {str(path.relative_to(name)): path.read_bytes() for path in Path(name).rglob("*") if path.is_file()}


SCENE = _scene_files()
CAMERAS = "cameras_sphere.npz"


def similarity_of(scale: float, centre: tuple[float, ...]) -> np.ndarray:
    """A scale matrix."""
    matrix = np.diag([scale] * 3 + [1.0])
    matrix[:3, 3] = centre
    return matrix


KINDS = st.sampled_from(["f8", "f4", "f2", ">f8", "i4", "u1", "c16", "?", "U3", "S2", "M8[s]", "i8"])
SCALARS = st.sampled_from([0.0, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e155, 1e308, np.inf, np.nan, 2.5])
ANY_ARRAY = KINDS.flatmap(lambda kind: arrays(kind, max_dims=3, max_side=4))
MATRICES = hnp.arrays("f8", (4, 4), elements=SCALARS | st.floats(-4, 4))
SIMILARITIES = st.tuples(SCALARS, *[SCALARS] * 3).map(lambda v: similarity_of(v[0], v[1:]))
MEMBERS = (ANY_ARRAY | MATRICES | SIMILARITIES).map(npy) | st.text(max_size=60).map(header) | damaged(npy(np.eye(4)))
HEADER_WORDS = ["{", "}", "'descr'", "'shape'", "'fortran_order'", ":", ",", "(", ")", "'<f8'", "'O'", "True"]
HEADER_WORDS += ["10**9", "99999999999", "4", "\n", "[", "L", "-1"]
MEMBERS |= st.lists(st.sampled_from(HEADER_WORDS), max_size=16).map("".join).map(header)
KEYS = st.sampled_from([f"{kind}_mat_{view}.npy" for kind in ("world", "scale") for view in (0, 1)])
METHODS = st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])


def camera_file(changes: dict[str, bytes], method: int) -> bytes:
    """The good camera file with other members."""
    with np.load(io.BytesIO(SCENE[CAMERAS])) as good:
        members = {f"{key}.npy": npy(good[key]) for key in good.files} | changes
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for key, data in members.items():
            archive.writestr(key, data)
    return buffer.getvalue()


def moved_world(factor: float, scale_mat: np.ndarray) -> dict[str, bytes]:
    """The good cameras times a factor, in a sphere of their own."""
    with np.load(io.BytesIO(SCENE[CAMERAS])) as good, np.errstate(all="ignore"):
        worlds = {f"world_mat_{view}.npy": npy(good[f"world_mat_{view}"] * factor) for view in (0, 1)}
    return worlds | {f"scale_mat_{view}.npy": npy(scale_mat) for view in (0, 1)}


MEMBER_SETS = st.dictionaries(KEYS, MEMBERS, max_size=2) | st.builds(moved_world, SCALARS, SIMILARITIES)
CAMERA_FILES = damaged(SCENE[CAMERAS]) | st.builds(camera_file, MEMBER_SETS, METHODS)
CAMERA_FILES |= st.builds(camera_file, MEMBER_SETS, st.just(zipfile.ZIP_STORED))


# pictures, meshes
NOISE = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)
PICTURES = [cv2.imencode(".png", NOISE)[1], cv2.imencode(".png", NOISE[..., 0].astype(np.uint16))[1]]
PICTURES += [
    cv2.imencode(".jpg", NOISE[..., :3])[1],
    cv2.imencode(".jpg", NOISE[..., 0], [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1],
]
OBJ = b"mtllib a.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvn 0 0 1\nusemtl a\nf 1/1/1 2/1/1 3/1/1\n"
ASCII_PLY = b"""ply
format ascii 1.0
comment TextureFile a.png
element vertex 3
property float x
property float y
property float z
element face 1
property list uchar int vertex_indices
end_header
0 0 0
1 0 0
0 1 0
3 0 1 2
"""


def meshes() -> Iterator[bytes]:
    from trimesh.creation import icosahedron

    yield from (icosahedron().export(file_type=kind) for kind in ("ply", "stl"))
    yield from (OBJ, ASCII_PLY, icosahedron().export(file_type="stl_ascii").encode())


# checkpoints: damaged ones, and odd ones under a digest that fits
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOAT | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PARTS = st.sampled_from(["network/a/b", "exp_avg/a.b", "exp_avg_sq/", "network", "/", "other/a"]) | st.text(max_size=5)
NUMBERS = st.integers(-2, 9).map(str) | st.integers().map(str) | st.text(max_size=4)
STATES = JSON.map(json.dumps) | st.dictionaries(st.sampled_from(["conf", "seconds"]), JSON).map(json.dumps) | TEXTS


def signed(arrays: dict[str, np.ndarray], step: str, adam_steps: str, state: str, schema: str) -> bytes:
    """A file that passes for one of ours."""
    metadata = {"format": "neus-jittor", "schema": schema, "step": step, "adam_steps": adam_steps, "state": state}
    return save(arrays, metadata={**metadata, "sha256": digest_of(arrays, metadata)})


FLOATS = st.sampled_from(["f4", "f8", "i8", "?"]).flatmap(lambda kind: arrays(kind, max_dims=2, max_side=3))
SIGNED = st.builds(signed, st.dictionaries(PARTS, FLOATS, max_size=2), NUMBERS, NUMBERS, STATES, st.just("1") | NUMBERS)


def resigned(state: dict[str, object], spoilt: list[tuple[str, str, float]], step: int) -> bytes:
    """The good checkpoint with another state, and numbers put into its arrays, under a checksum of its own."""
    whole = make_checkpoint(step)
    for moment, name, number in spoilt:
        with np.errstate(over="ignore"):
            whole.moments[moment][name][1] = number
    return encoded(replace(whole, state=state))


def _with_one_leaf_changed(value: object) -> st.SearchStrategy[object]:
    """A JSON value in which one part, at any depth, may be another."""
    if not isinstance(value, dict):
        return st.just(value) | JSON | ODD_NUMBERS
    changed = [_with_one_leaf_changed(part).map(lambda new, key=key: value | {key: new}) for key, part in value.items()]
    missing = st.sampled_from(sorted(value)).map(lambda key: {k: part for k, part in value.items() if k != key})
    return st.one_of(st.just(value), *changed, missing, JSON)


ODD_NUMBERS = st.sampled_from([0, -1, 2**128, 1e999, -1e999, float("nan"), True, "1", [[1.0]], [1, 0]])
MOMENT_NAMES = [(m, name) for m, named in make_checkpoint().moments.items() for name in named]
SPOILT = st.tuples(st.sampled_from(MOMENT_NAMES), st.floats()).map(lambda pair: (*pair[0], pair[1]))
RESIGNED = st.builds(
    resigned, _with_one_leaf_changed(GOOD_STATE), st.just([]) | st.lists(SPOILT, max_size=2), st.integers(0, 9)
)


GOLDEN = (ROOT / "tests/golden/official_wmask_000040.pth").read_bytes()
SMALL_FILES = (zip_file(SMALL), legacy_file(SMALL))
NETWORKS = ("nerf", "sdf_network_fine", "variance_network_fine", "color_network_fine")
STATE_DICTS = st.dictionaries(
    st.sampled_from(["lin0.weight", "lin0.bias", "variance"]) | st.text(max_size=4), FLOATS | JSON
)
ADAMS = st.fixed_dictionaries({"state": JSON | st.just({}), "param_groups": st.just([{"params": [0, 1]}]) | JSON})
RAW = st.fixed_dictionaries(
    {**dict.fromkeys(NETWORKS, STATE_DICTS), "iter_step": JSON | FLOATS, "optimizer": ADAMS | JSON}
)


# streams: texts of all that breaks lines or steers terminals, and where they are to be shown
PIECES = st.sampled_from(["photograph ", FORGED, *BREAKING.values()]) | st.text(max_size=5) | st.characters()
SHOWN = st.lists(st.lists(PIECES, max_size=6).map("".join), min_size=1, max_size=3)
ENCODINGS = st.sampled_from(["utf-8", "ascii", "latin-1", "utf-16", "utf-7", "cp037", "idna", "punycode", "shift_jis"])
STREAMS = st.tuples(SHOWN, ENCODINGS | st.sampled_from(sorted(broken_streams())))

"""What the readers are fed by tests/fuzzing.py: strategies for good, damaged and odd inputs of each kind.

Of a prepare folder: stored results of steps, and databases of features and matches.
"""

from __future__ import annotations

import contextlib
import io
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import cv2
import numpy as np
from bad_input_builders import CONF, GOOD_STATE, header, npy
from checkpoint_samples import SMALL, legacy_file, make_checkpoint, zip_file
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from synthetic_scene import write_scene

from data.errors import UserError
from data.prepare.frames import Frame
from data.prepare.sfm.matches import has_features, is_sound, read_links
from models.checkpoints.ours import encoded
from models.conf import known_leaves

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
WORDS = [*'{}[]=:,\n"$\\#/+. ', "\x00", "\ud7ff", "include ", "model { nerf {", "5 days", "CASE_NAME", "null", "true"]
WORDS += ['"""', "${", "${a}", "${?a}", "+=", "//", "url(", '"x.conf"', "${train}", "a", "a.b", "train", "1", "-1e3"]
WORDS += ["1e999"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=25).map("".join) | st.text(max_size=40)
VALUES = TEXTS | st.integers().map(str) | FLOAT.map(str)
ASSIGNMENTS = st.tuples(st.sampled_from(sorted(known_leaves())) | TEXTS, VALUES).map("=".join)
CONFS = TEXTS | TEXTS.map(lambda text: CONF + "\n" + text) | ASSIGNMENTS.map(lambda text: CONF + "\n" + text)
OVERRIDES = st.just([]) | st.lists(ASSIGNMENTS | TEXTS, max_size=2)
CASES = st.sampled_from(["", "", "", "a", "${a}", "..", "\x00"]) | st.text(max_size=4)
CONFS |= damaged(CONF.encode()).map(lambda data: data.decode("utf-8", "replace"))


# scenes: any arrays, any headers, any bytes
def _scene_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        write_scene(Path(name), n_views=2, size=(6, 8))
        return {str(path.relative_to(name)): path.read_bytes() for path in Path(name).rglob("*") if path.is_file()}


SCENE = _scene_files()
CAMERAS = "cameras_sphere.npz"


KINDS = st.sampled_from(["f8", "f4", "f2", ">f8", "i4", "u1", "c16", "?", "U3", "S2", "M8[s]", "i8"])
SCALARS = st.sampled_from([0.0, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e155, 1e308, np.inf, np.nan, 2.5])
ANY_ARRAY = KINDS.flatmap(lambda kind: arrays(kind, max_dims=3, max_side=4))
MATRICES = hnp.arrays("f8", (4, 4), elements=SCALARS | st.floats(-4, 4)) | SCALARS.map(lambda v: v * np.eye(4))
MEMBERS = (ANY_ARRAY | MATRICES).map(npy) | st.text(max_size=60).map(header) | damaged(npy(np.eye(4)))
HEADER_WORDS = [*"{}:,()[L\n4", "'descr'", "'shape'", "'fortran_order'", "'<f8'", "'O'", "True", "10**9", "99999999999"]
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


CAMERA_FILES = damaged(SCENE[CAMERAS]) | st.builds(camera_file, st.dictionaries(KEYS, MEMBERS, max_size=2), METHODS)


# pictures, meshes
NOISE = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)
KINDS_OF_PICTURES = ((".png", NOISE), (".png", NOISE[..., 0].astype(np.uint16)), (".jpg", NOISE[..., :3]))
PICTURES = [cv2.imencode(kind, pixels)[1].tobytes() for kind, pixels in KINDS_OF_PICTURES]
PICTURE_FILES = damaged(*PICTURES) | st.binary(max_size=40)
OBJ = b"mtllib a.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvn 0 0 1\nusemtl a\nf 1/1/1 2/1/1 3/1/1\n"


def meshes() -> Iterator[bytes]:
    from trimesh.creation import icosahedron

    yield OBJ
    for kind in ({"file_type": "ply"}, {"file_type": "ply", "encoding": "ascii"}, {"file_type": "stl"}):
        yield icosahedron().export(**kind)


# checkpoints: damaged ones, and odd ones under a digest that fits
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOAT | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


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
PUBLISHED = damaged(zip_file(SMALL), legacy_file(SMALL), GOLDEN) | st.just(GOLDEN)


WRITTEN = [asdict(Frame(f"{number:04d}.png", f"photo {number}", 8, 6, 9.5)) for number in range(3)]
NAMES = [frame["name"] for frame in WRITTEN]


def _database() -> bytes:
    """One as COLMAP writes it, of two photographs."""
    with contextlib.closing(sqlite3.connect(":memory:")) as opened:
        opened.execute("CREATE TABLE images (image_id INTEGER PRIMARY KEY, name TEXT, camera_id INTEGER)")
        for table in ("keypoints", "descriptors", "matches", "two_view_geometries"):
            key = "image_id" if table in ("keypoints", "descriptors") else "pair_id"
            opened.execute(f"CREATE TABLE {table} ({key} INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB)")
        for number, name in enumerate(NAMES[:2], 1):
            opened.execute("INSERT INTO images VALUES (?, ?, 1)", (number, name))
            opened.execute("INSERT INTO keypoints VALUES (?, 2, 6, ?)", (number, bytes(48)))
            opened.execute("INSERT INTO descriptors VALUES (?, 2, 128, ?)", (number, bytes(256)))
        opened.execute("INSERT INTO two_view_geometries VALUES (2147483649, 1, 2, ?)", (bytes(8),))
        opened.commit()
        return opened.serialize()


def links(data: bytes, folder: Path) -> None:
    """Check a database: a valid one returns its links or raises an error of one sentence."""
    path = folder / "matches.db"
    path.write_bytes(data)
    is_good = is_sound(path) and has_features(path, NAMES[:2])
    assert all(isinstance(count, int) for count in read_links(path, dict.fromkeys(NAMES, "a")).values())
    if not is_good:
        raise UserError("is not sound")


DATABASES = damaged(_database()) | st.just(_database())

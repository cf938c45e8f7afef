"""What the reader of prepare folders is fed by tests/fuzzing.py: a finished folder with files damaged, and what it has
to become when the steps are called again."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from dataclasses import asdict
from pathlib import Path

from fuzz_inputs import JSON, damaged
from hypothesis import strategies as st

from data.errors import UserError
from data.prepare.database import count_rows, has_features, is_sound, read_links
from data.prepare.frames import Frame, read_frame_list
from data.prepare.pipeline import FINISHED
from data.prepare.reconstruct import DATABASE, IMAGES, MODELS, read_model
from data.prepare.steps import Step, Steps

FRAMES = [Frame(f"{number:04d}.png", f"photo {number}", 8, 6, 9.5) for number in range(3)]
NAMES = [frame.name for frame in FRAMES]
MODEL = {"folder": "0", "names": NAMES, "points": 7, "error": 0.5, "errors": {}, "notes": ["a note"]}
INPUTS = {"photographs": [1], "features": [], "matches": [], "cameras": [], FINISHED: []}
MATRIX = "rows INTEGER, cols INTEGER, data BLOB"
TABLES = "CREATE TABLE images (image_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, camera_id INTEGER NOT NULL);"
for table, key in (
    ("keypoints", "image"),
    ("descriptors", "image"),
    ("matches", "pair"),
    ("two_view_geometries", "pair"),
):
    TABLES += f"CREATE TABLE {table} ({key}_id INTEGER PRIMARY KEY, {MATRIX});"


def call(folder: Path) -> tuple[object, object]:
    """The steps of a preparation whose work is done at once; the photographs and the model that they give."""
    steps, database = Steps(folder, INPUTS, lambda text: None), folder / DATABASE
    sound, folders = {"is_sound": lambda: is_sound(database)}, (str(Path(DATABASE).parent),)
    has_all, pairs = lambda: has_features(database, NAMES), lambda: (folder / "pairs.txt").write_text("a b\n")
    is_matched = lambda: count_rows(database, "two_view_geometries", 0) >= 1  # noqa: E731
    photographs = Step("photographs", lambda: _write(folder / IMAGES, NAMES), (IMAGES,), ("features",), read_frame_list)
    after = ("matches", "cameras")
    features = Step("features", lambda: _fill(database), folders, after, is_whole=has_all, **sound)
    matches = Step("matches", pairs, ("pairs.txt",), after[1:], is_whole=is_matched, **sound)
    cameras = Step("cameras", lambda: _write(folder / MODELS, ["0.bin"]) and MODEL, (MODELS,), read=read_model)
    results = [steps.run(step) for step in (photographs, features, matches, cameras)]
    return results[0], results[3]


def _write(folder: Path, names: list[str]) -> list[dict[str, object]]:
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(name.encode() * 9)
    return [asdict(frame) for frame in FRAMES]


def _fill(database: Path) -> None:
    """The work of a step that goes on from a database that is sound: here it writes it anew."""
    database.parent.mkdir(exist_ok=True)
    database.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(database)) as opened, opened:
        opened.executescript(TABLES)
        for number, name in enumerate(NAMES):
            opened.execute("INSERT INTO images VALUES (?, ?, 1)", (number + 1, name))
            opened.execute("INSERT INTO keypoints VALUES (?, 2, 6, ?)", (number + 1, bytes(48)))
            opened.execute("INSERT INTO descriptors VALUES (?, 2, 128, ?)", (number + 1, bytes(256)))
        opened.execute("INSERT INTO two_view_geometries VALUES (?, 1, 2, ?)", (2147483647 + 2, bytes(8)))


def _whole() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        call(Path(name))
        return {str(path.relative_to(name)): path.read_bytes() for path in Path(name).rglob("*") if path.is_file()}


WHOLE = _whole()
OUTPUTS = [name for name in WHOLE if name.startswith((f"{IMAGES}/", f"{MODELS}/"))]
KEYS = {name: json.loads(WHOLE[f"{name}.json"])["key"] for name in INPUTS if f"{name}.json" in WHOLE}


def mend(changes: dict[str, bytes | None], folder: Path) -> None:
    """Call the steps in a folder in which files were replaced, by folders where None: they give the usual result, and
    the folder is complete again."""
    for name, content in (WHOLE | changes).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir() if content is None else (folder / name).write_bytes(content)
    assert call(folder) == (FRAMES, MODEL)
    assert all((folder / name).read_bytes() == WHOLE[name] for name in OUTPUTS)
    assert is_sound(folder / DATABASE) and has_features(folder / DATABASE, NAMES)
    assert call(folder) == (FRAMES, MODEL)
    if changes:
        raise UserError("was damaged, and is mended")


def links(data: bytes, folder: Path) -> None:
    """Check a database: a valid one returns its links or raises an error of one sentence."""
    (folder / DATABASE).parent.mkdir()
    (folder / DATABASE).write_bytes(data)
    is_good = is_sound(folder / DATABASE) and has_features(folder / DATABASE, NAMES)
    found = read_links(folder / DATABASE, dict.fromkeys(NAMES, "a"))
    assert all(isinstance(count, int) for count in found.values())
    if not is_good:
        raise UserError("is not sound")


def _stamp(name: str, result: object, files: dict[str, object]) -> dict[str, bytes | None]:
    """A stamp with the right key and any result, as a version without checksums wrote it."""
    return {f"{name}.json": json.dumps({"key": KEYS[name], "result": result, **files}).encode()}


ANY_FILE = damaged(*WHOLE.values()) | st.binary(max_size=40) | st.none()
STAMPS = st.builds(_stamp, st.sampled_from(sorted(KEYS)), JSON, st.just({}) | JSON.map(lambda value: {"files": value}))
PREPARED = st.just({}) | STAMPS | st.dictionaries(st.sampled_from(sorted(WHOLE)), ANY_FILE, max_size=3)
DATABASES = damaged(WHOLE[DATABASE]) | st.just(WHOLE[DATABASE])

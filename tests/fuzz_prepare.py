"""What the reader of prepare folders is fed by tests/fuzzing.py: a finished folder with files damaged, and what it has
to become when the steps are called again; and databases of features and matches."""

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
from data.prepare.database import has_features, is_sound, read_links
from data.prepare.frames import Frame, read_frame_list
from data.prepare.reconstruct import IMAGES, MODELS, read_model
from data.prepare.steps import Step, Steps

FRAMES = [Frame(f"{number:04d}.png", f"photo {number}", 8, 6, 9.5) for number in range(3)]
NAMES = [frame.name for frame in FRAMES]
MODEL = {"folder": "0", "names": NAMES, "points": 7, "error": 0.5, "errors": {}, "notes": ["a note"]}


def call(folder: Path) -> list[object]:
    """The photographs and the model that the steps of a preparation give, whose work is done at once."""
    results = {IMAGES: [asdict(frame) for frame in FRAMES], MODELS: MODEL}

    def work(output: str) -> object:
        (folder / output).mkdir()
        for name in NAMES:
            (folder / output / name).write_bytes(name.encode() * 9)
        return results[output]

    steps = Steps(folder, {"photographs": [1], "cameras": []}, lambda text: None)
    photographs = Step("photographs", lambda: work(IMAGES), (IMAGES,), ("cameras",), read_frame_list)
    return [
        steps.run(step) for step in (photographs, Step("cameras", lambda: work(MODELS), (MODELS,), read=read_model))
    ]


def _whole() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        call(Path(name))
        return {str(path.relative_to(name)): path.read_bytes() for path in Path(name).rglob("*") if path.is_file()}


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


WHOLE, DATABASE = _whole(), _database()
KEYS = {name: json.loads(WHOLE[f"{name}.json"])["key"] for name in ("photographs", "cameras")}


def mend(changes: dict[str, bytes | None], folder: Path) -> None:
    """Call the steps in a folder in which files were replaced, by folders where None: they give the usual result, and
    the folder is complete again."""
    for name, content in (WHOLE | changes).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir() if content is None else (folder / name).write_bytes(content)
    for _ in range(2):
        assert call(folder) == [FRAMES, MODEL]
        assert all((folder / name).read_bytes() == data for name, data in WHOLE.items() if not name.endswith(".json"))
    if changes:
        raise UserError("was damaged, and is mended")


def links(data: bytes, folder: Path) -> None:
    """Check a database: a valid one returns its links or raises an error of one sentence."""
    path = folder / "matches.db"
    path.write_bytes(data)
    is_good = is_sound(path) and has_features(path, NAMES[:2])
    assert all(isinstance(count, int) for count in read_links(path, dict.fromkeys(NAMES, "a")).values())
    if not is_good:
        raise UserError("is not sound")


def _stamp(name: str, result: object, files: dict[str, object]) -> dict[str, bytes | None]:
    """A stamp with the right key and any result, as a version without checksums wrote it."""
    return {f"{name}.json": json.dumps({"key": KEYS[name], "result": result, **files}).encode()}


ANY_FILE = damaged(*WHOLE.values()) | st.binary(max_size=40) | st.none()
STAMPS = st.builds(_stamp, st.sampled_from(sorted(KEYS)), JSON, st.just({}) | JSON.map(lambda value: {"files": value}))
PREPARED = st.just({}) | STAMPS | st.dictionaries(st.sampled_from(sorted(WHOLE)), ANY_FILE, max_size=3)
DATABASES = damaged(DATABASE) | st.just(DATABASE)

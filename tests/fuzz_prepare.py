"""What the reader of prepare folders is fed by tests/fuzzing.py: stored results of steps, and databases of features and
matches."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import asdict
from pathlib import Path

from fuzz_inputs import JSON, damaged
from hypothesis import strategies as st

from data.errors import UserError
from data.prepare.database import has_features, is_sound, read_links
from data.prepare.frames import Frame, read_frame_list
from data.prepare.reconstruct import read_model
from data.prepare.steps import Step, Steps

WRITTEN = [asdict(Frame(f"{number:04d}.png", f"photo {number}", 8, 6, 9.5)) for number in range(3)]
NAMES = [frame["name"] for frame in WRITTEN]
MODEL = {"folder": "0", "names": NAMES, "points": 7, "error": 0.5, "errors": {}, "notes": ["a note"]}


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


def mend(value: object, folder: Path) -> None:
    """Call steps whose stored result has the right key and may be anything: their own result takes its place."""
    said: list[str] = []
    steps = Steps(folder, {"step": 1}, said.append)
    for own, read in ((WRITTEN, read_frame_list), (MODEL, read_model)):
        (folder / "step.json").write_text(json.dumps({"key": steps.key("step"), "result": value}))
        assert steps.run(Step("step", lambda own=own: own, read=read)) == read(own) or "step: done before" in said
    if "step: done before" not in said:
        raise UserError("was damaged, and is mended")


def links(data: bytes, folder: Path) -> None:
    """Check a database: a valid one returns its links or raises an error of one sentence."""
    path = folder / "matches.db"
    path.write_bytes(data)
    is_good = is_sound(path) and has_features(path, NAMES[:2])
    assert all(isinstance(count, int) for count in read_links(path, dict.fromkeys(NAMES, "a")).values())
    if not is_good:
        raise UserError("is not sound")


MODELS = st.builds(lambda key, value: MODEL | {key: value}, st.sampled_from([*MODEL]), JSON)
FRAMES = st.builds(lambda key, value: [frame | {key: value} for frame in WRITTEN], st.sampled_from([*WRITTEN[0]]), JSON)
PREPARED = st.sampled_from([WRITTEN, MODEL]) | JSON | MODELS | FRAMES
DATABASES = damaged(_database()) | st.just(_database())

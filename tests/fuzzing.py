"""Fuzzing of everything that is read: for each reader a strategy for its inputs, and what must hold for every one.

A reader gives a value or a UserError; anything else, a warning included, is a finding. tests/test_fuzz.py runs a few
hundred examples of each, benchmarks/fuzz.py as many as asked for.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import fuzz_prepare
import numpy as np
from bad_input_builders import broken_streams
from checkpoint_samples import make_checkpoint
from config_samples import changed
from fuzz_inputs import (
    ARGUMENTS,
    CAMERA_FILES,
    CAMERAS,
    CASES,
    CONFS,
    GOLDEN,
    GOOD_FLAGS,
    OVERRIDES,
    PICTURES,
    RAW,
    RESIGNED,
    SCENE,
    SIGNED,
    SMALL_FILES,
    STREAMS,
    damaged,
    meshes,
)
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from synthetic_scene import dataset_config

from data.errors import UserError, one_line
from data.io.images import read_image
from data.io.streams import say, usable_encoding
from data.scenes.load import load_scene
from models.checkpoints.ours import encoded, load_checkpoint
from models.checkpoints.published import read_torch_checkpoint, to_checkpoint
from models.commands.arguments import parse_arguments
from models.evaluation.mesh_distance import read_mesh
from models.methods.conf import load_config, parse_config, to_hocon
from models.monitoring.logger import RunLogger
from models.training.chunks import settled_chunk

ROOT = Path(__file__).resolve().parents[1]
EIGHT_RAYS = changed(train={"batch_size": 8}).train


@dataclass(frozen=True)
class Target:
    """A reader and the strategy of its inputs."""

    inputs: st.SearchStrategy[Any]
    read: Callable[[Any, Path], object]  # input, an empty folder -> value


def fuzz(name: str, examples: int, number: int | None = None) -> tuple[int, int]:
    """Feed a target; returns how many inputs it was given, and how many it accepted.

    Raises whatever is not a UserError, with the input shrunk.

    number: the seed; None for the same examples each time.
    """
    target, given_to, accepted = TARGETS[name], 0, 0

    def check(value: Any) -> None:
        nonlocal given_to, accepted
        given_to += 1
        accepted += _is_accepted(target, value, folder)

    options = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=number is None,
        suppress_health_check=list(HealthCheck),
    )
    test = options(given(target.inputs)(check))
    with tempfile.TemporaryDirectory() as name_of_folder, contextlib.chdir(name_of_folder):
        folder = Path(name_of_folder)
        (test if number is None else seed(number)(test))()
    return given_to, accepted


def _is_accepted(target: Target, value: Any, folder: Path) -> bool:
    """Whether the target reads the input; a UserError must be a sentence that can be shown."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()) as said:
            warnings.simplefilter("error")
            target.read(value, folder)
    except UserError as error:
        assert str(error) and one_line(str(error)).isprintable()
        return False
    finally:
        assert not said.getvalue(), "the sentence is all that is said"
    return True


def read_conf(value: tuple[str, list[str], str], folder: Path) -> None:
    text, overrides, case = value
    (folder / "x.conf").write_text(text, encoding="utf-8", errors="surrogatepass")
    conf = load_config(folder / "x.conf", case, overrides)
    assert parse_config(to_hocon(conf), "text") == conf


def read_scene(cameras: bytes, folder: Path) -> None:
    for name, data in (SCENE | {CAMERAS: cameras}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    scene = load_scene(dataset_config(folder))
    rays, _ = scene.rays(0)
    for values in (rays.origins, rays.directions, rays.near, rays.far):
        assert np.isfinite(values).all()


def read_picture(data: bytes, folder: Path) -> None:
    (folder / "a.png").write_bytes(data)
    assert read_image(folder / "a.png").dtype in (np.uint8, np.uint16)


def read_any_mesh(value: tuple[bytes, str], folder: Path) -> None:
    data, kind = value
    (folder / f"a.{kind}").write_bytes(data)
    mesh = read_mesh(folder / f"a.{kind}")
    assert np.isfinite(mesh.vertices).all() and len(mesh.faces)


def read_ours(data: bytes, folder: Path) -> None:
    path = folder / "ckpt_000003.safetensors"
    path.write_bytes(data)
    checkpoint = load_checkpoint(path)
    if isinstance(text := checkpoint.state.get("conf"), str):
        parse_config(text, "the checkpoint's conf")


def read_resigned(data: bytes, folder: Path) -> None:
    """What is made of a checkpoint's state: none of it may fail once the file was taken."""
    path = folder / "ckpt_000003.safetensors"
    path.write_bytes(data)
    checkpoint = load_checkpoint(path)
    state = checkpoint.state
    assert float(state.get("seconds", 0.0)) >= 0.0
    assert np.isfinite(np.array(state.get("scene_to_world", np.eye(4)), np.float64)).all()
    assert (settled_chunk(EIGHT_RAYS, state) or 1) >= 1
    assert all((values >= 0.0).all() for values in checkpoint.moments["exp_avg_sq"].values())
    if "sampler" in state:
        np.random.default_rng().bit_generator.state = state["jitter"]
        np.random.default_rng().bit_generator.state = state["sampler"]["generator"]


def read_published(value: bytes | dict[str, Any], folder: Path) -> None:
    if isinstance(value, bytes):
        (folder / "ckpt_000040.pth").write_bytes(value)
        value = read_torch_checkpoint(folder / "ckpt_000040.pth")
    to_checkpoint(value)


def show(value: tuple[list[str], str], folder: Path) -> None:
    """Print and log texts; UserError where the screen shows them otherwise than they are, or nothing."""
    texts, kind = value
    screen = io.BytesIO()
    good = io.TextIOWrapper(screen, encoding=usable_encoding(kind), newline="\n")
    stream = broken_streams().get(kind, good)
    with mock.patch.multiple(sys, stdout=stream, stderr=stream), RunLogger(folder) as log:
        log.info(*texts)
        for text in texts:
            log.warn(text)
        for _ in log.progress(texts, desc=texts[0], mininterval=0, file=io.StringIO()):
            say()
        say(*texts)
    count = len(texts)
    recorded = (folder / "logs/train.log").read_bytes().decode("utf-8").split("\n")
    assert len(recorded) == 2 * count + 1 and all(line.isprintable() for line in recorded)
    if stream is not good:
        raise UserError("nothing is shown")
    shown = screen.getvalue().decode(usable_encoding(kind)).split("\n")
    assert len(shown) == 3 * count + 1 and all(line.isprintable() for line in shown)
    if shown[:count] != texts:
        raise UserError("is spelt out")


OURS = encoded(make_checkpoint())
TARGETS = {
    "conf": Target(st.tuples(CONFS, OVERRIDES, CASES), read_conf),
    "flags": Target(st.lists(ARGUMENTS, max_size=6) | GOOD_FLAGS, lambda argv, _: parse_arguments(argv)),
    "scene": Target(CAMERA_FILES, read_scene),
    "picture": Target(damaged(*(picture.tobytes() for picture in PICTURES)) | st.binary(max_size=40), read_picture),
    "mesh": Target(st.tuples(damaged(*meshes()), st.sampled_from(["ply", "obj", "stl", "glb"])), read_any_mesh),
    "checkpoint": Target(damaged(OURS) | SIGNED | st.just(OURS), read_ours),
    "checkpoint, signed anew": Target(RESIGNED, read_resigned),
    "published checkpoint": Target(damaged(*SMALL_FILES, GOLDEN) | RAW | st.just(GOLDEN), read_published),
    "prepare folder": Target(fuzz_prepare.PREPARED, fuzz_prepare.mend),
    "prepare database": Target(fuzz_prepare.DATABASES, fuzz_prepare.links),
    "streams": Target(STREAMS, show),
}

"""Fuzzing of everything that is read: for each reader a strategy for its inputs, and what must hold for every one.

A reader gives a value or a UserError; anything else, a warning included, is a finding. tests/test_fuzz.py runs a few
hundred examples of each, benchmarks/fuzz.py as many as asked for.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fuzz_inputs as of
import numpy as np
from checkpoint_samples import make_checkpoint
from config_samples import changed
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from synthetic_scene import dataset_config

from data.errors import UserError, one_line
from data.io.images import read_image
from data.prepare.load import load_scene
from models.checkpoints.ours import encoded, load_checkpoint
from models.checkpoints.published import read_torch_checkpoint, to_checkpoint
from models.conf import load_config, parse_config, to_hocon
from models.mesh.mesh import read_mesh
from models.runs.measured import known_chunk

EIGHT_RAYS = changed(train={"batch_size": 8}).train


class Target(NamedTuple):
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

    options = settings(database=None, derandomize=number is None, suppress_health_check=list(HealthCheck))
    test = settings(options, max_examples=examples, deadline=None)(given(target.inputs)(check))
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
    for name, data in (of.SCENE | {of.CAMERAS: cameras}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    scene = load_scene(dataset_config(folder))
    rays, _ = scene.rays(0)
    assert all(np.isfinite(values).all() for values in (rays.origins, rays.directions, rays.near, rays.far))


def read_picture(data: bytes, folder: Path) -> None:
    (folder / "a.png").write_bytes(data)
    assert read_image(folder / "a.png").dtype in (np.uint8, np.uint16)


def read_any_mesh(value: tuple[bytes, str], folder: Path) -> None:
    data, kind = value
    (folder / f"a.{kind}").write_bytes(data)
    mesh = read_mesh(folder / f"a.{kind}")
    assert np.isfinite(mesh.vertices).all() and len(mesh.faces)


def read_ours(data: bytes, folder: Path) -> None:
    """A checkpoint, and what is made of its state: none of it may fail once the file was taken."""
    path = folder / "ckpt_000003.safetensors"
    path.write_bytes(data)
    checkpoint = load_checkpoint(path)
    state = checkpoint.state
    if isinstance(text := state.get("conf"), str):
        parse_config(text, "the checkpoint's conf")
    assert float(state.get("seconds", 0.0)) >= 0.0 and (known_chunk(EIGHT_RAYS, state) or 1) >= 1
    assert np.isfinite(np.array(state.get("scene_to_world", np.eye(4)), np.float64)).all()
    assert all((values >= 0.0).all() for values in checkpoint.moments.get("exp_avg_sq", {}).values())
    if "sampler" in state:
        np.random.default_rng().bit_generator.state = state["jitter"]
        np.random.default_rng().bit_generator.state = state["sampler"]["generator"]


def read_published(data: bytes, folder: Path) -> None:
    (folder / "ckpt_000040.pth").write_bytes(data)
    to_checkpoint(read_torch_checkpoint(folder / "ckpt_000040.pth"))


OURS = encoded(make_checkpoint())
TARGETS = {
    "conf": Target(st.tuples(of.CONFS, of.OVERRIDES, of.CASES), read_conf),
    "scene": Target(of.CAMERA_FILES, read_scene),
    "picture": Target(of.PICTURE_FILES, read_picture),
    "mesh": Target(st.tuples(of.damaged(*of.meshes()), st.sampled_from(["ply", "obj", "stl", "glb"])), read_any_mesh),
    "checkpoint": Target(of.damaged(OURS) | of.RESIGNED | st.just(OURS), read_ours),
    "published checkpoint": Target(of.PUBLISHED, read_published),
    "prepare database": Target(of.DATABASES, of.links),
}

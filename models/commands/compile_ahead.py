"""What a recipe compiles, compiled by another process while COLMAP, which needs no Jittor, estimates the cameras."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from data.errors import UserError
from data.io.clock import phase
from data.io.files import write_result
from data.io.search_path import safe_environment
from data.io.streams import say
from models.commands.command import Selected, key_of, scene_flags
from models.commands.reconstruction_plan import END_ITER
from models.config.program import PROGRAM
from models.machine.ranks import end_with_parent
from models.machine.toolchain import jittor_home

SCENE = PROGRAM.parent / "data" / "demo"
STEPS, RESOLUTION = 64, 64
SOURCE_SUFFIXES = (".py", ".h", ".hpp")
NICE = 4  # of 19: estimating cameras comes first, but on a busy machine 10 would wait for minutes
# The child's program: the modes that follow the cameras, on the bundled scene.
MODES_PROGRAM = """
import json, os, sys
sys.path[:] = sys.argv[2:]
from exp_runner import main
os._exit(next((status for status in map(main, json.loads(sys.argv[1])) if status), 0))
"""


@contextlib.contextmanager
def compile_ahead(selected: Selected, is_masked: bool) -> Iterator[None]:
    """Compile while the body runs, and wait for the rest, which would be compiled next anyway.

    An exception of the body ends the child, as does the end of this process. A failure changes nothing: the kernels are
    then compiled when they are used. A mark in Jittor's cache says what is compiled already.
    """
    words = _commands(selected, is_masked, Path("FOLDER"))
    mark = Path(jittor_home()) / ".cache" / "jittor" / f"ahead-{_key(words)}"
    if mark.exists() or not SCENE.is_dir():
        yield
        return
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        _started(_commands(selected, is_masked, Path(folder))) as child,
    ):
        yield
        if child.poll() is None:
            say("compiling what training and mesh use, once per machine; later commands start at once")
        with phase("compiling"):
            is_done = child.wait() == 0
    if is_done:
        with contextlib.suppress(OSError, UserError):
            write_result(mark, b"")


def _commands(selected: Selected, is_masked: bool, folder: Path) -> list[list[str]]:
    """The command lines of the child, with results below `folder`."""
    ours: tuple[str, ...] = (f"dataset.data_dir={SCENE}", "dataset.test_every=8", f"general.base_exp_dir={folder}")
    ours += (f"{END_ITER}={STEPS}", f"train.val_freq={STEPS}")
    others = (text for text in selected.overrides if key_of(text).partition(".")[0] in ("model", "train"))
    unmasked = () if is_masked else ("train.mask_weight=0",)
    scene = scene_flags(replace(selected, case="", overrides=(*others, *ours, *unmasked)), selected.conf)
    resolution = ["--resolution", str(RESOLUTION)]
    mesh = ["--mode", "validate_mesh", "--clean", "views", "--output", str(folder / "mesh.ply"), *resolution]
    return [[*scene, *mode] for mode in (["--mode", "train"], mesh, ["--mode", "evaluate", *resolution])]


def _key(words: Sequence[Sequence[str]]) -> str:
    """Of what is compiled: the commands and the program's sources."""
    digest = hashlib.sha256(json.dumps([words, sys.version]).encode())
    for path in sorted((PROGRAM.parent / "models").rglob("*.*")):
        if path.suffix in SOURCE_SUFFIXES:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _started(commands: Sequence[Sequence[str]]) -> Iterator[subprocess.Popen]:
    """The child process, which is killed at the end of the block."""
    words = [sys.executable, "-P", "-c", MODES_PROGRAM, json.dumps(commands), str(PROGRAM.parent), *sys.path]
    no = subprocess.DEVNULL
    parent = os.getpid()

    def give_way() -> None:
        os.nice(NICE)
        end_with_parent(signal.SIGKILL, parent)

    child = subprocess.Popen(words, env=safe_environment(), preexec_fn=give_way, stdin=no, stdout=no, stderr=no)
    try:
        yield child
    finally:
        child.kill()
        child.wait()

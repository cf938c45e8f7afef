"""Requests that cannot be met: too much memory, files of a wrong type, invalid numbers and names."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from bad_input_builders import Change, beside, comparing, conf, content, flags, setting, stateful, then

LONG = "x" * 300
UNBOUND = stateful(state={})
FLAT_OBJ = b"v 0 0 0\nv 1 0 0\nv 2 0 0\nf 1 2 3\n"
FAR_OBJ = b"v 0 0 0\nv 1e200 0 0\nv 0 1e200 0\nf 1 2 3\n"


def pipe(name: str) -> Change:
    """A named pipe without a writer."""
    return lambda folder: os.mkfifo(folder / name)


def listener(name: str) -> Change:
    """A socket in the file system."""

    def change(folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            old = os.getcwd()
            os.chdir(folder)  # a socket's path is short
            try:
                server.bind(name)
            finally:
                os.chdir(old)

    return change


def preparing(*argv: str) -> Change:
    """Prepare photographs."""
    return flags("--mode", "prepare", "--case", "bear", *argv)


BAD_REQUESTS: dict[str, tuple[Change, list[str]]] = {
    # memory
    "a batch of a billion rays": (setting("train.batch_size=1000000000"), ["train.batch_size = 1000000000", "GB"]),
    "a batch beyond every number": (setting("train.batch_size=9e18"), ["train.batch_size", "GB of memory"]),
    "a network a million wide": (
        flags(*(f"--set=model.{key}.d_hidden=1000000" for key in ("sdf_network", "rendering_network"))),
        ["the networks of the conf", "model.sdf_network"],
    ),
    "a billion samples": (setting("model.neus_renderer.n_samples=1000000000"), ["n_samples", "at most 65536"]),
    "a mesh of 100,000 points a side": (
        setting("train.mesh_resolution=100000"),
        ["train.mesh_resolution = 100000", "points per side fit"],
    ),
    # files that are none
    "a pipe for a conf": (then(pipe("p.conf"), flags("--conf", "p.conf")), ["p.conf", "not a regular file"]),
    "a socket for a conf": (then(listener("s.conf"), flags("--conf", "s.conf")), ["s.conf", "cannot be read"]),
    "a device that never ends": (flags("--conf", "/dev/zero"), ["/dev/zero", "not a regular file"]),
    "a pipe included": (then(pipe("p.conf"), conf('include "p.conf"')), ["p.conf", "not a regular file"]),
    "a device included": (conf('include "/dev/tty0"'), ["/dev/tty0", "cannot be read"]),
    "a folder included": (conf('include "teapot"'), ["teapot", "cannot be read"]),
    "a pipe for a checkpoint": (then(pipe("c.safetensors"), flags("--checkpoint", "c.safetensors")), ["no such file"]),
    "a pipe for a camera file": (
        then(pipe("teapot/p.npz"), setting("dataset.render_cameras_name=p.npz")),
        ["p.npz", "no such camera file"],
    ),
    "a pipe for a mesh": (beside(UNBOUND, pipe("m.ply"), comparing("reference_mesh=m.ply")), ["m.ply: no such mesh"]),
    # names
    "a mesh with a name too long": (beside(UNBOUND, comparing(f"reference_mesh={LONG}.ply")), [LONG, "cannot be read"]),
    "test views with a name too long": (beside(UNBOUND, comparing(f"test_dir={LONG}")), [LONG, "cannot be read"]),
    "cameras with a name too long": (setting(f"dataset.render_cameras_name={LONG}"), [LONG, "cannot be read"]),
    "photographs with a name too long": (preparing("--images", LONG), ["--images"]),
    "masks with a name too long": (preparing("--images", "teapot/image", "--masks", LONG), ["xxx", "too long"]),
    # numbers and keys
    "an Arabic three": (setting("train.end_iter=٣"), ["train.end_iter = '٣'", "whole number"]),
    "an Arabic fraction": (setting("train.learning_rate=٠.٥"), ["train.learning_rate", "must be a number"]),
    "an Arabic three in a conf": (conf("train.end_iter = ٣"), ["train.end_iter = '٣'", "whole number"]),
    "a fullwidth three in a list": (setting("dataset.test_views=[３]"), ["dataset.test_views", "whole number"]),
    "an Arabic level": (flags("--mcube_threshold", "٣"), ["--mcube_threshold", "not a finite number"]),
    "a level with an underscore": (flags("--mcube_threshold", "1_0"), ["--mcube_threshold", "not a finite number"]),
    "an Arabic image": (flags("--image", "٣"), ["--image", "not a whole number"]),
    "an Arabic region": (flags("--roi", "٠ 0 0 1"), ["--roi", "four numbers"]),
    "a second key behind a line break": (setting("train.end_iter=3\ntrain.batch_size=4"), ["--set", "line breaks"]),
    "two keys in a block": (setting("train={end_iter=8, seed=3}"), ["--set train", "sets several keys"]),
    "a variable of the environment": (setting("general.base_exp_dir=${HOME}/x"), ["--set", "${HOME}"]),
    "a second key behind a comma": (setting("train.end_iter=3,train.batch_size=4"), ["--set", "sets other keys too"]),
    "a second key in a block": (setting("train={end_iter=3},general={base_exp_dir=a}"), ["--set train", "other keys"]),
    # meshes
    "a mesh without area": (
        beside(UNBOUND, content("m.obj", FLAT_OBJ), comparing("reference_mesh=m.obj")),
        ["m.obj", "no area"],
    ),
    "a mesh without end": (beside(UNBOUND, content("m.obj", FAR_OBJ), comparing("reference_mesh=m.obj")), ["m.obj"]),
}

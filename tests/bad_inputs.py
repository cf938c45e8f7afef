"""Bad inputs for the command line, each with words of its error message.

The command is `--conf x.conf` and the flags a change returns; tests/test_bad_inputs.py runs them.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import zipfile

import bad_input_builders as b
import numpy as np
from checkpoint_samples import SMALL, Call, Name, make_checkpoint, tensor, zip_file
from synthetic_scene import SCALE_MAT

NPY_320_GB = "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000, 4)}\n"
PUBLISHED = "ckpt_000040.pth"
LONG = "x" * 300
# Python 3.14 says of a file whose name is too long that it does not exist.
TOO_LONG, UNREADABLE = ("too long", "cannot be read") if sys.version_info < (3, 14) else ("no such", "no such")
UNBOUND = b.stateful(state={})  # a checkpoint that names no conf, as the published ones
HUGE_PLY = b"ply\nformat binary_little_endian 1.0\nelement vertex 1000000000000\n"
HUGE_PLY += b"".join(b"property float %c\n" % axis for axis in b"xyz")
HUGE_PLY += b"element face 1000000000000\nproperty list uchar int vertex_indices\nend_header\n"
EVIL = Call(Name("os", "system"), ("touch sprung",))
CHAIN = [b.content(f"{i}.conf", f'include "{i + 1}.conf"\n'.encode() * 2) for i in range(10)]
DOUBLING = "".join(f"t{i} = ${{t{i + 1}}}${{t{i + 1}}}\n" for i in range(40)) + "t40 = x"
BOMB = b.members(zipfile.ZIP_DEFLATED, world_mat_0=bytes(1 << 26))
LOGS = b.folder_named("exp/logs")
GOING_ON = b.going_on(UNBOUND, "--is_continue")
IMAGE_9 = b.flags("--mode", "validate_image", "--image", "9")
COMPRESSED = zip_file({"x": tensor(np.zeros(99999))}, compression=zipfile.ZIP_DEFLATED)
SIZES = ("d_hidden=8192", "n_layers=30")
WIDE = b.flags(*(f"--set=model.{key}_network.{size}" for key in ("sdf", "rendering") for size in SIZES))
OTHER = b.beside(UNBOUND, b.other_frame, b.comparing("test_dir=other"))
TRAINED = b.folder_named("exp/checkpoints/ckpt_000003.safetensors")


def matrix(value: np.ndarray | None) -> b.Change:
    """Another world_mat_1."""
    return b.cameras(world_mat_1=value)


def holding(**state: object) -> b.Change:
    """A checkpoint of ours with only this state."""
    return b.checkpoint(b.OURS, b.stateful(state=state))


def bound(key: str, value: object) -> b.Change:
    """A checkpoint whose state is good but for this key."""
    state = {name: part for name, part in (b.GOOD_STATE | {key: value}).items() if part is not None}
    return b.checkpoint(b.OURS, b.stateful(state=state))


def moments(moment: str, number: float, kind: str = "f4") -> b.Change:
    """A checkpoint with this number in a moment."""
    whole = make_checkpoint()
    named = {name: values.astype(kind) for name, values in whole.moments[moment].items()}
    next(iter(named.values()))[2] = number
    return b.checkpoint(b.OURS, b.stateful(moments=whole.moments | {moment: named}))


def giant(count: int, kind: str = "F32", size: int = 4) -> b.Change:
    """A file that claims one array of `count` numbers, all of them holes; the checksum comes too late to matter."""
    metadata = {"format": "neus-jittor", "schema": "1", "step": "3", "adam_steps": "3", "sha256": "0"}
    metadata["state"] = "{}"
    entry = {"dtype": kind, "shape": [count], "data_offsets": [0, count * size]}
    text = json.dumps({"__metadata__": metadata, "network/sdf_network_fine/lin0.bias": entry}).encode()
    start = struct.pack("<Q", len(text)) + text
    return b.then(b.checkpoint(b.OURS, start), b.sparse(b.OURS, len(start) + size * count), b.flags(*b.TO_MESH, b.OURS))


def mesh(name: str, data: bytes) -> b.Change:
    """A file to compare the surface with."""
    return b.beside(UNBOUND, b.content(name, data), b.comparing(f"reference_mesh={name}"))


def preparing(*argv: str) -> b.Change:
    """Prepare photographs."""
    return b.flags("--mode", "prepare", "--case", "bear", *argv)


# Key of the state, values that this program cannot have written (None: missing), word of the message.
STATES = [
    ("seconds", ["1.5", b.INF, b.NAN, -1, 10**400, True], "seconds"),
    (
        "scene_to_world",
        [[[1, 0], [0]], [["1"] * 4] * 4, b.EYE[:3], [[b.NAN] * 4] * 4, 1, [[0] * 4] * 4],
        "scene_to_world",
    ),
]


BAD_INPUTS: dict[str, tuple[b.Change, list[str]]] = {
    # flags
    "unknown flag": (b.flags("--resoluton", "64"), ["did you mean --resolution?"]),
    "unknown mode": (b.flags("--mode", "trian"), ["--mode trian", "did you mean train?"]),
    "unknown mode as the first word": (b.flags("trian"), ["trian: unknown argument", "did you mean train?"]),
    "word that is no mode": (b.flags("picture"), ["known: train, validate_mesh"]),
    "no number": (b.flags("--gpu", "one"), ["--gpu", "'one' is not a whole number"]),
    "number out of range": (b.flags("--resolution", "1"), ["--resolution", "2..2048"]),
    "a folder for a checkpoint": (b.flags("--checkpoint", "teapot"), ["--checkpoint teapot", "no such file"]),
    "a conf that is not there": (b.flags("--conf", "y.conf"), ["y.conf", "no such conf file", "x.conf"]),
    "a conf with a zero in its name": (b.flags("--conf", "x\0.conf"), ["x\\x00.conf", "cannot be read"]),
    "a folder for a conf": (b.flags("--conf", "teapot"), ["teapot", "cannot be read as a conf file"]),
    "two contrary flags": (b.flags("--overwrite", "--is_continue"), ["only one of them"]),
    # conf
    "unknown key": (b.setting("train.lerning_rate=1"), ["did you mean train.learning_rate?"]),
    "a negative weight": (b.setting("train.mask_weight=-1"), ["train.mask_weight = -1", "at least 0"]),
    "no samples": (b.setting("model.neus_renderer.n_samples=0"), ["n_samples = 0", "at least 1"]),
    "networks that do not fit": (b.setting("model.sdf_network.d_out=9"), ["rendering_network.d_feature"]),
    "results below a file": (b.setting("general.base_exp_dir=x.conf/a/b"), ["base_exp_dir", "x.conf is not a folder"]),
    "a results name too long": (b.setting(f"general.base_exp_dir={LONG}"), ["base_exp_dir", "too long"]),
    "results nowhere": (b.then(b.link("gone", "no"), b.setting("general.base_exp_dir=gone")), ["gone is not a folder"]),
    "not HOCON": (b.conf("train { end_iter = 3"), ["x.conf", "not HOCON"]),
    "a conf without end": (b.conf("# " + 70000 * "x"), ["x.conf", "more than 65536 characters"]),
    "brackets without end": (b.conf("general.recording = " + 3000 * "["), ["x.conf", "cannot be read as HOCON"]),
    "an address included": (b.conf('include url("http://127.0.0.1:9/x.conf")'), ["include of a file"]),
    "an address by --set": (b.setting('model={nerf={include url("ftp://127.0.0.1/x")}}'), ["include of a file"]),
    "a wildcard included": (b.conf('include "/**/*.conf"'), ["/**/*.conf", "no such conf file"]),
    "a circle": (b.then(b.link("l.conf", "l.conf"), b.conf('include "l.conf"')), ["l.conf", "cannot be read"]),
    "too many": (b.then(b.content("10.conf", b"# end"), *CHAIN, b.conf('include "0.conf"')), ["more than 64 files"]),
    "substitutions that double": (b.conf(DOUBLING), ["more than 20 substitutions"]),
    "a substitution of nothing": (b.setting("dataset.data_dir=${none}"), ["${...}", "cannot be resolved"]),
    # scene
    "no scene": (b.setting("dataset.data_dir=kettle"), ["kettle: no such folder", "dataset.data_dir"]),
    "a file for a scene": (b.setting("dataset.data_dir=x.conf"), ["x.conf: is a file"]),
    "no such camera file": (b.setting("dataset.render_cameras_name=../c.npz"), ["teapot/../c.npz", "no such camera"]),
    "no masks where they are weighed": (b.no_masks, ["has no masks", "train.mask_weight = 0"]),
    "a mask too few": (b.removed("teapot/mask/003.png"), ["3 masks for 4 photographs"]),
    "masks all black": (b.masks(0), ["all masks are empty"]),
    "masks of 0 and 1": (b.masks(1), ["all masks are empty", "1 of 255"]),
    "a smaller mask": (b.picture(b.MASK, b.SAME[:12]), ["mask/001.png", "32x12"]),
    "a truncated PNG": (b.content(b.PICTURE, b.GOOD_PNG[:-200]), ["001.png", "truncated or damaged"]),
    "a 0x0 JPEG": (b.content(b.PICTURE, b.jpeg_size(0, 0)), ["001.png", "cannot be decoded"]),
    "a truncated JPEG": (b.content(b.PICTURE, b.GOOD_JPEG[:400]), ["001.png", "truncated or damaged"]),
    "a picture file of 4 GiB": (b.sparse(b.PICTURE, 1 << 32), ["001.png", "larger than 2048 MiB"]),
    "a smaller picture": (b.picture(b.PICTURE, b.SAME[:12]), ["001.png", "32x12", "000.png 32x24"]),
    "a deeper picture": (b.picture(b.PICTURE, b.SAME.astype(np.uint16)), ["001.png", "16 bits"]),
    "an evil name": (b.evil_name, ["001 $(touch sprung);\\n\\x1b[2J.png", "neither PNG, JPEG, WebP nor TIFF"]),
    # cameras
    "no camera file": (b.removed(b.NPZ), ["no such camera file", "render_cameras_name"]),
    "a pickle for a camera file": (b.content(b.NPZ, pickle.dumps({})), ["not an npz archive"]),
    "a truncated camera file": (lambda folder: os.truncate(folder / b.NPZ, 900), ["not an npz archive"]),
    "a missing key": (matrix(None), ["has no world_mat_1", "4 photographs"]),
    "NaN in a matrix": (matrix(np.full((4, 4), np.nan)), ["world_mat_1", "NaN"]),
    "a wrong shape": (matrix(np.eye(3)), ["world_mat_1", "[3, 3]"]),
    "complex numbers": (matrix(np.eye(4) * 1j), ["world_mat_1", "complex128"]),
    "objects": (matrix(np.array([None, {}])), ["world_mat_1", "Object arrays"]),
    "a matrix that overflows": (matrix(np.diag([1e308, 1e308, 1, 1]) * 1.5), ["world_mat_1"]),
    "a squashed sphere": (b.cameras(scale_mat_0=np.diag([1.0, 1, 2, 1])), ["scale_mat_0", "not a similarity"]),
    "a sphere beyond float64": (b.cameras(scale_mat_0=np.diag([1e200, 1e200, 1e200, 1])), ["scale_mat_0"]),
    "an array cut short": (b.members(world_mat_0=b.npy(np.eye(4))[:-8]), ["world_mat_0"]),
    "an array of 320 GB": (b.members(world_mat_0=b.header(NPY_320_GB)), ["claims 40000000000 values"]),
    "an array header that is no dictionary": (b.members(world_mat_0=b.header("(" * 300 + "\n")), ["world_mat_0"]),
    "an array header of two lines": (b.members(world_mat_0=b.header("{'a':\n'''")), ["world_mat_0"]),
    "a zip bomb": (BOMB, ["would decompress to 67108864 bytes"]),
    "a zip bomb that says it is small": (b.then(BOMB, b.understated), ["world_mat_0"]),
    "an lzma bomb": (b.members(zipfile.ZIP_LZMA, scale_mat_0=b.npy(SCALE_MAT)), ["a compression method"]),
    # checkpoints
    "no checkpoint": (b.flags("--mode", "validate_mesh"), ["no checkpoint", "train first"]),
    "a flipped bit": (b.checkpoint(b.OURS, b.good_checkpoint()[:-1] + b"\x01"), [b.OURS, "checksum does not match"]),
    "a published one named as ours": (b.checkpoint(b.OURS, zip_file(SMALL)), [b.OURS, "damaged"]),
    "ours named as a published one": (b.checkpoint(PUBLISHED, b.good_checkpoint()), [PUBLISHED, "file of torch.save"]),
    "a state that is a list": (b.checkpoint(b.OURS, b.stateful(state=[1])), [b.OURS, "state"]),
    "a conf in it that is a number": (holding(conf=3), [b.OURS, "state"]),
    "a conf in it that is none": (holding(conf="a = ["), ["the checkpoint's conf"]),
    "a conf in it that includes": (holding(conf='include required("/etc/passwd")'), ["checkpoint's conf", "not all"]),
    "other networks": (holding(conf=b.CONF.replace("n_layers = 8", "n_layers = 5")), ["differs from", "n_layers"]),
    "a negative step": (b.checkpoint(b.OURS, b.stateful(adam_steps=-1)), [b.OURS, "number of steps"]),
    "a published one that runs a command": (b.checkpoint(PUBLISHED, zip_file(EVIL)), ["'os.system'", "nothing was"]),
    "a compressed one": (b.checkpoint(PUBLISHED, COMPRESSED), ["compressed entries"]),
    "a published one of something else": (b.checkpoint(PUBLISHED, zip_file(SMALL)), ["it has no 'nerf'"]),
    "a name of two lines": (b.checkpoint(PUBLISHED, zip_file({"nerf": {"a\nb": 1}})), ["'nerf.a\\nb' is not a tensor"]),
    "checkpoints that would be lost": (TRAINED, ["pass --is_continue"]),
    "going on over them": (b.then(TRAINED, b.going_on(UNBOUND)), ["pass --overwrite", b.OURS, "another general.base"]),
    "the same with --is_continue": (b.then(TRAINED, GOING_ON), ["--is_continue without --checkpoint"]),
    "checkpoints behind a link": (
        b.then(b.folder_named("else/ckpt_000003"), b.link("exp/checkpoints", "../else"), b.flags("--overwrite")),
        ["exp/checkpoints", "symbolic link", "remove it"],
    ),
    # what a training writes to
    "a lock that is a hard link": (b.hard_link("exp/.training.lock", "x.conf"), ["training.lock", "a hard link"]),
    "a lock that would be made elsewhere": (b.link("exp/.training.lock", "../new"), ["training.lock", "symbolic link"]),
    "a lock that is a pipe": (b.pipe("exp/.training.lock"), ["it is not a file"]),
    "a lock that is a folder": (b.folder_named("exp/.training.lock"), ["exp/.training.lock", "cannot be written"]),
    "a log that is a link": (
        b.then(LOGS, b.link("exp/logs/train.log", "../../x.conf")),
        ["train.log", "symbolic link"],
    ),
    # flags of a run
    "no such photograph": (b.beside(UNBOUND, IMAGE_9), ["there is no training photograph 9", "0 to 3", "--image"]),
    "a test folder that is not there": (b.beside(UNBOUND, b.comparing("test_dir=kettle")), ["kettle: no such folder"]),
    "a test scene of another frame": (OTHER, ["dataset.test_dir = other", "region of interest (scale_mat_0) differs"]),
    "a mesh that is not there": (b.beside(UNBOUND, b.comparing("reference_mesh=m.ply")), ["m.ply: no such mesh file"]),
    "a mesh of a format that can fetch": (mesh("m.gltf", b"{}"), ["m.gltf: is not a .ply, .obj, .stl or .glb file"]),
    "a text for a mesh": (mesh("m.ply", b"hello"), ["m.ply: cannot be read as a mesh"]),
    "a mesh of a trillion vertices": (mesh("m.ply", HUGE_PLY), ["m.ply"]),
    # memory
    "a batch beyond every number": (b.setting("train.batch_size=9e18"), ["train.batch_size", "at most 10000000"]),
    "networks of 30 layers of the largest width": (WIDE, ["the networks of the conf", "model.sdf_network"]),
    "a billion samples": (b.setting("model.neus_renderer.n_samples=1000000000"), ["n_samples", "at most 65536"]),
    "a large mesh": (b.setting("train.mesh_resolution=32768"), ["mesh_resolution = 32768", "points per side fit"]),
    # files that are none
    "a pipe for a conf": (b.then(b.pipe("p.conf"), b.flags("--conf", "p.conf")), ["p.conf", "not a regular file"]),
    "a socket for a conf": (b.then(b.listener("s"), b.flags("--conf", "s")), ["s", "cannot be read"]),
    "a device included": (b.conf('include "/dev/tty0"'), ["/dev/tty0", "cannot be read"]),
    "a pipe for a checkpoint": (b.then(b.pipe("c.pth"), b.flags("--checkpoint", "c.pth")), ["no such file"]),
    "a pipe for cameras": (b.then(b.pipe("teapot/p"), b.setting("dataset.render_cameras_name=p")), ["no such camera"]),
    "a pipe for a mesh": (b.beside(UNBOUND, b.pipe("m"), b.comparing("reference_mesh=m")), ["m: no such mesh"]),
    # names
    "a long name of a mesh": (b.beside(UNBOUND, b.comparing(f"reference_mesh={LONG}")), [LONG, UNREADABLE]),
    "cameras with a name too long": (b.setting(f"dataset.render_cameras_name={LONG}"), [LONG, UNREADABLE]),
    "photographs with a name too long": (preparing("--images", LONG), ["--images"]),
    "masks with a name too long": (preparing("--images", "teapot/image", "--masks", LONG), [LONG, TOO_LONG]),
    # numbers and keys
    "a level with an underscore": (b.flags("--mcube_threshold", "1_0"), ["--mcube_threshold", "not a finite number"]),
    "an Arabic image": (b.flags("--image", "٣"), ["--image", "not a whole number"]),
    "an Arabic region": (b.flags("--roi", "٠ 0 0 1"), ["--roi", "four numbers"]),
    "a second key behind a line break": (b.setting("train.end_iter=3\ntrain.batch_size=4"), ["--set", "line breaks"]),
    "two keys in a block": (b.setting("train={end_iter=8, seed=3}"), ["--set train", "sets several keys"]),
    "a variable of the environment": (b.setting("general.base_exp_dir=${HOME}/x"), ["--set", "${HOME}"]),
    "a second key behind a comma": (b.setting("train.end_iter=3,train.batch_size=4"), ["--set", "sets other keys too"]),
}
BAD_INPUTS |= {
    f"the folder {name} that is a link": (b.link(f"exp/{name}", "../teapot"), [f"exp/{name}", "symbolic link"])
    for name in ("logs", "meshes", "normals", "validations_fine", "recording")
}
BAD_INPUTS |= {
    f"the case {case!r}": (b.flags("--case", case), [f"--case {case!r}", "one folder"])
    for case in ("../other", "/etc", "a\nb", "\x1b[2J")
}
BAD_INPUTS |= {
    f"{key} {number}, {word}": (bound(key, value), [b.OURS, word])
    for key, values, word in STATES
    for number, value in enumerate(values)
}
BAD_INPUTS |= {
    f"weights of {k}": (giant(4, kind=k, size=s), [b.OURS, k]) for k, s in (("BF16", 2), ("C64", 8), ("I64", 8))
}
BAD_INPUTS |= {
    "a negative second moment": (moments("exp_avg_sq", -1.0), [b.OURS, "exp_avg_sq", "negative"]),
    "an infinite second moment": (moments("exp_avg_sq", b.INF), [b.OURS, "exp_avg_sq", "not finite"]),
    "a first moment that is NaN": (moments("exp_avg", b.NAN), [b.OURS, "exp_avg", "not finite"]),
    "a first moment beyond float32": (moments("exp_avg", 1e300, "f8"), [b.OURS, "exp_avg", "not finite"]),
    "a giant of holes": (giant(1 << 38), [b.OURS, "does not fit into memory"]),
}

"""Bad inputs for the command line, each with words of its error message.

The command is `--conf x.conf` and the flags a change returns; tests/test_bad_inputs.py runs them.
"""

from __future__ import annotations

import os
import pickle
import zipfile

import numpy as np
from bad_input_builders import (
    CONF,
    GOOD_JPEG,
    GOOD_PNG,
    MASK,
    NPZ,
    PICTURE,
    SAME,
    Change,
    beside,
    cameras,
    checkpoint,
    claiming,
    comparing,
    conf,
    content,
    flags,
    folder_named,
    going_on,
    good_checkpoint,
    hard_link,
    header,
    jpeg_size,
    link,
    masks,
    members,
    npy,
    other_frame,
    picture,
    removed,
    renamed,
    setting,
    sparse,
    stateful,
    then,
    understated,
)
from synthetic_scene import SCALE_MAT
from torch_files import SMALL, Call, Name, tensor, zip_file

OURS, PUBLISHED = "ckpt_000003.safetensors", "ckpt_000040.pth"
LONG = "x" * 300
UNBOUND = stateful(state={})  # a checkpoint that names no conf, as the published ones
HUGE_PLY = b"""ply
format binary_little_endian 1.0
element vertex 1000000000000
property float x
property float y
property float z
element face 1000000000000
property list uchar int vertex_indices
end_header
"""
EVIL = Call(Name("os", "system"), ("touch sprung",))

BAD_INPUTS: dict[str, tuple[Change, list[str]]] = {
    # flags
    "unknown flag": (flags("--resoluton", "64"), ["did you mean --resolution?"]),
    "unknown mode": (flags("--mode", "trian"), ["--mode trian", "did you mean train?"]),
    "no number": (flags("--gpu", "one"), ["--gpu", "'one' is not a whole number"]),
    "number out of range": (flags("--resolution", "1"), ["--resolution", "2..2048"]),
    "a checkpoint that is not there": (flags("--checkpoint", "none.pth"), ["none.pth", "no such file"]),
    "a checkpoint with a name too long": (flags("--checkpoint", LONG), ["--checkpoint", "no such file"]),
    "a folder for a checkpoint": (flags("--checkpoint", "teapot"), ["--checkpoint teapot", "no such file"]),
    "a conf that is not there": (flags("--conf", "y.conf"), ["y.conf", "no such conf file", "x.conf"]),
    "a conf with a name too long": (flags("--conf", LONG), ["cannot be read as a conf file"]),
    "a conf with a zero in its name": (flags("--conf", "x\0.conf"), ["x\\x00.conf", "cannot be read"]),
    "a folder for a conf": (flags("--conf", "teapot"), ["teapot", "cannot be read as a conf file"]),
    "a case that climbs": (flags("--case", "../other"), ["--case '../other'", "one folder"]),
    "an absolute case": (flags("--case", "/etc"), ["--case '/etc'"]),
    "a case of two lines": (flags("--case", "a\nb"), ["--case 'a\\nb'"]),
    "a case with an escape sequence": (flags("--case", "\x1b[2J"), ["--case '\\x1b[2J'"]),
    "two contrary flags": (flags("--overwrite", "--is_continue"), ["only one of them"]),
    # conf
    "unknown key": (setting("train.lerning_rate=1"), ["did you mean train.learning_rate?"]),
    "a negative weight": (setting("train.mask_weight=-1"), ["train.mask_weight = -1", "at least 0"]),
    "no samples": (setting("model.neus_renderer.n_samples=0"), ["n_samples = 0", "at least 1"]),
    "networks that do not fit": (setting("model.sdf_network.d_out=9"), ["rendering_network.d_feature"]),
    "a folder for results that is a file": (setting("general.base_exp_dir=x.conf"), ["x.conf is not a folder"]),
    "results below a file": (setting("general.base_exp_dir=x.conf/a/b"), ["base_exp_dir", "x.conf is not a folder"]),
    "a results name too long": (setting(f"general.base_exp_dir={LONG}"), ["base_exp_dir", "too long"]),
    "a link for results that leads nowhere": (
        then(link("gone", "nowhere"), setting("general.base_exp_dir=gone")),
        ["gone is not a folder"],
    ),
    "not HOCON": (conf("train { end_iter = 3"), ["x.conf", "not HOCON"]),
    "a photograph for a conf": (content("x.conf", GOOD_PNG), ["x.conf", "is not UTF-8"]),
    "a conf without end": (conf("# " + 70000 * "x"), ["x.conf", "more than 65536 characters"]),
    "brackets without end": (conf("general.recording = " + 3000 * "["), ["x.conf", "cannot be read as HOCON"]),
    "an address included": (conf('include url("http://127.0.0.1:9/x.conf")'), ["include of a file"]),
    "an address by --set": (setting('model={nerf={include url("ftp://127.0.0.1/x")}}'), ["include of a file"]),
    "a package by --set": (setting('train={include package("os:x")}'), ["include of a file"]),
    "a wildcard included": (conf('include "/**/*.conf"'), ["/**/*.conf", "no such conf file"]),
    "a link in a circle": (then(link("l.conf", "l.conf"), conf('include "l.conf"')), ["l.conf", "cannot be read"]),
    "an include too many": (
        then(
            content("10.conf", b"# the end"),
            *(content(f"{i}.conf", f'include "{i + 1}.conf"\n'.encode() * 2) for i in range(10)),
            conf('include "0.conf"'),
        ),
        ["more than 64 files"],
    ),
    "substitutions that double": (
        conf("".join(f"t{i} = ${{t{i + 1}}}${{t{i + 1}}}\n" for i in range(40)) + "t40 = x"),
        ["more than 20 substitutions"],
    ),
    "a substitution of nothing": (setting("dataset.data_dir=${none}"), ["${...}", "cannot be resolved"]),
    # scene
    "no scene": (setting("dataset.data_dir=kettle"), ["kettle: no such folder", "dataset.data_dir"]),
    "a scene name too long": (setting(f"dataset.data_dir={LONG}"), ["cannot be read", "too long"]),
    "a file for a scene": (setting("dataset.data_dir=x.conf"), ["x.conf: is a file"]),
    "no such camera file": (setting("dataset.render_cameras_name=../c.npz"), ["teapot/../c.npz", "no such camera"]),
    "no masks where they are weighed": (
        then(*(removed(f"teapot/mask/00{i}.png") for i in range(4)), lambda folder: (folder / "teapot/mask").rmdir()),
        ["has no masks", "train.mask_weight = 0"],
    ),
    "a mask too few": (removed("teapot/mask/003.png"), ["3 masks for 4 photographs"]),
    "masks all black": (masks(0), ["all masks are empty"]),
    "masks of 0 and 1": (masks(1), ["all masks are empty", "1 of 255"]),
    "a smaller mask": (picture(MASK, SAME[:12]), ["mask/001.png", "32x12"]),
    "a text for a mask": (content(MASK, b"hello"), ["mask/001.png", "neither PNG, JPEG nor WebP"]),
    "a truncated mask": (content(MASK, GOOD_PNG[:300]), ["mask/001.png", "truncated or damaged"]),
    "a text named .png": (content(PICTURE, b"hello"), ["001.png", "neither PNG, JPEG nor WebP"]),
    "a truncated PNG": (content(PICTURE, GOOD_PNG[:-200]), ["001.png", "truncated or damaged"]),
    "a 0x0 JPEG": (content(PICTURE, jpeg_size(0, 0)), ["001.png", "cannot be decoded"]),
    "a truncated JPEG": (content(PICTURE, GOOD_JPEG[:400]), ["001.png", "truncated or damaged"]),
    "a picture file of 4 GiB": (sparse(PICTURE, 1 << 32), ["001.png", "larger than 2048 MiB"]),
    "a smaller picture": (picture(PICTURE, SAME[:12]), ["001.png", "32x12", "000.png 32x24"]),
    "a deeper picture": (picture(PICTURE, SAME.astype(np.uint16)), ["001.png", "16 bits"]),
    "a bad picture with an evil name": (
        then(content(PICTURE, b"hello"), renamed(PICTURE, "teapot/image/001 $(touch sprung);\n\x1b[2J.png")),
        ["001 $(touch sprung);\\n\\x1b[2J.png", "neither PNG, JPEG nor WebP"],
    ),
    # cameras
    "no camera file": (removed(NPZ), ["no such camera file", "render_cameras_name"]),
    "a text for a camera file": (content(NPZ, b"hello"), ["not an npz archive"]),
    "a pickle for a camera file": (content(NPZ, pickle.dumps({})), ["not an npz archive"]),
    "a truncated camera file": (lambda folder: os.truncate(folder / NPZ, 900), ["not an npz archive"]),
    "a missing key": (cameras(world_mat_2=None), ["has no world_mat_2", "4 photographs"]),
    "NaN in a matrix": (cameras(world_mat_1=np.full((4, 4), np.nan)), ["world_mat_1", "NaN"]),
    "a wrong shape": (cameras(world_mat_1=np.eye(3)), ["world_mat_1", "[3, 3]"]),
    "complex numbers": (cameras(world_mat_1=np.eye(4) * 1j), ["world_mat_1", "complex128"]),
    "text for numbers": (cameras(world_mat_1=np.full((4, 4), "1")), ["world_mat_1", "not real numbers"]),
    "objects": (cameras(world_mat_1=np.array([None, {}])), ["world_mat_1", "Object arrays"]),
    "a singular matrix": (cameras(world_mat_1=np.ones((4, 4))), ["world_mat_1", "singular"]),
    "a matrix that overflows": (cameras(world_mat_1=np.diag([1e308, 1e308, 1, 1]) * 1.5), ["world_mat_1"]),
    "a squashed sphere": (cameras(scale_mat_0=np.diag([1.0, 1, 2, 1])), ["scale_mat_0", "not a similarity"]),
    "a sphere beyond float64": (cameras(scale_mat_0=np.diag([1e200, 1e200, 1e200, 1])), ["scale_mat_0"]),
    "an array cut short": (members(world_mat_0=npy(np.eye(4))[:-8]), ["world_mat_0"]),
    "an array of 320 GB": (members(world_mat_0=claiming((10**10, 4))), ["claims 40000000000 values"]),
    "an array header that is no dictionary": (members(world_mat_0=header("(" * 300 + "\n")), ["world_mat_0"]),
    "an array header of two lines": (members(world_mat_0=header("{'a':\n'''")), ["world_mat_0"]),
    "a zip bomb": (members(zipfile.ZIP_DEFLATED, world_mat_0=bytes(1 << 26)), ["would decompress to 67108864 bytes"]),
    "a zip bomb that says it is small": (understated, ["world_mat_0"]),
    "a bzip2 bomb": (members(zipfile.ZIP_BZIP2, world_mat_0=bytes(1 << 15)), ["a compression method"]),
    "an lzma bomb": (members(zipfile.ZIP_LZMA, scale_mat_0=npy(SCALE_MAT)), ["a compression method"]),
    # checkpoints
    "no checkpoint": (flags("--mode", "validate_mesh"), ["no checkpoint", "train first"]),
    "a truncated checkpoint": (checkpoint(OURS, good_checkpoint()[:-9]), [OURS, "damaged"]),
    "a flipped bit": (checkpoint(OURS, good_checkpoint()[:-1] + b"\x01"), [OURS, "checksum does not match"]),
    "a published one named as ours": (checkpoint(OURS, zip_file(SMALL)), [OURS, "damaged"]),
    "ours named as a published one": (checkpoint(PUBLISHED, good_checkpoint()), [PUBLISHED, "file of torch.save"]),
    "a state that is a list": (checkpoint(OURS, stateful(state=[1])), [OURS, "state"]),
    "a conf in it that is a number": (checkpoint(OURS, stateful(state={"conf": 3})), [OURS, "state"]),
    "a conf in it that is none": (checkpoint(OURS, stateful(state={"conf": "a = ["})), ["the checkpoint's conf"]),
    "a conf in it that fetches": (
        checkpoint(OURS, stateful(state={"conf": 'include url("http://127.0.0.1:9/")'})),
        ["include of a file"],
    ),
    "a conf in it that includes a file": (
        checkpoint(OURS, stateful(state={"conf": 'include required("/etc/passwd")'})),
        ["the checkpoint's conf", "not allowed here"],
    ),
    "other networks": (
        checkpoint(OURS, stateful(state={"conf": CONF.replace("n_layers = 8", "n_layers = 5")})),
        ["differs from the checkpoint's networks", "n_layers"],
    ),
    "a negative step": (checkpoint(OURS, stateful(adam_steps=-1)), [OURS, "number of steps"]),
    "a published one that runs a command": (checkpoint(PUBLISHED, zip_file(EVIL)), ["'os.system'", "nothing was"]),
    "a compressed one": (
        checkpoint(PUBLISHED, zip_file({"x": tensor(np.zeros(99999))}, compression=zipfile.ZIP_DEFLATED)),
        ["compressed entries"],
    ),
    "a published one of something else": (checkpoint(PUBLISHED, zip_file(SMALL)), ["it has no 'nerf'"]),
    "a name of two lines in it": (
        checkpoint(PUBLISHED, zip_file({"nerf": {"a\nb\x1b[2J": 1}})),
        ["'nerf.a\\nb\\x1b[2J' is not a tensor"],
    ),
    "checkpoints that would be lost": (folder_named("exp/checkpoints/ckpt_000003.safetensors"), ["pass --is_continue"]),
    "checkpoints that another one would go on over": (
        then(folder_named("exp/checkpoints/ckpt_000003.safetensors"), going_on(UNBOUND)),
        ["exp/checkpoints", "pass --overwrite", OURS, "another general.base_exp_dir"],
    ),
    "the same with --is_continue": (
        then(folder_named("exp/checkpoints/ckpt_000003.safetensors"), going_on(UNBOUND, "--is_continue")),
        ["--is_continue without --checkpoint"],
    ),
    "checkpoints behind a link": (
        then(folder_named("elsewhere/ckpt_000003"), link("exp/checkpoints", "../elsewhere"), flags("--overwrite")),
        ["exp/checkpoints", "symbolic link", "remove it"],
    ),
    # what a training writes to
    "a lock that is a link": (link("exp/.training.lock", "../x.conf"), ["exp/.training.lock", "symbolic link"]),
    "a lock that is a hard link": (hard_link("exp/.training.lock", "x.conf"), ["exp/.training.lock", "a hard link"]),
    "a lock that would be made elsewhere": (link("exp/.training.lock", "../new"), ["exp/.training.lock"]),
    "a lock that is a pipe": (lambda folder: os.mkfifo(folder / "exp/.training.lock"), ["it is not a file"]),
    "a lock that is a folder": (folder_named("exp/.training.lock"), ["exp/.training.lock", "cannot be written"]),
    "a log that is a link": (
        then(folder_named("exp/logs"), link("exp/logs/train.log", "../../x.conf")),
        ["exp/logs/train.log", "symbolic link"],
    ),
    **{
        f"a folder {name} that is a link": (link(f"exp/{name}", "../teapot"), [f"exp/{name}", "symbolic link"])
        for name in ("logs", "meshes", "normals", "validations_fine", "recording")
    },
    # flags of a run
    "a photograph there is not": (
        beside(UNBOUND, flags("--mode", "validate_image", "--image", "9")),
        ["there is no training photograph 9", "0 to 3", "--image"],
    ),
    "a video to a photograph there is not": (
        beside(UNBOUND, flags("--mode", "interpolate_0_4")),
        ["there is no training photograph 4", "0 to 3"],
    ),
    "a test folder that is not there": (beside(UNBOUND, comparing("test_dir=kettle")), ["kettle: no such folder"]),
    "a test scene of another frame": (
        beside(UNBOUND, other_frame, comparing("test_dir=other")),
        ["dataset.test_dir = other", "its region of interest (scale_mat_0) differs"],
    ),
    "a mesh that is not there": (beside(UNBOUND, comparing("reference_mesh=m.ply")), ["m.ply: no such mesh file"]),
    "a mesh of a format that can fetch": (
        beside(UNBOUND, content("m.gltf", b"{}"), comparing("reference_mesh=m.gltf")),
        ["m.gltf: is not a .ply, .obj or .stl file"],
    ),
    "a mesh in an archive": (
        beside(UNBOUND, content("m.zip", b"PK"), comparing("reference_mesh=m.zip")),
        ["m.zip: is not a .ply, .obj or .stl file"],
    ),
    "a text for a mesh": (
        beside(UNBOUND, content("m.ply", b"hello"), comparing("reference_mesh=m.ply")),
        ["m.ply: cannot be read as a mesh"],
    ),
    "a mesh of a trillion vertices": (
        beside(UNBOUND, content("m.ply", HUGE_PLY), comparing("reference_mesh=m.ply")),
        ["m.ply"],
    ),
}

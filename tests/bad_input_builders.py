"""Changes that damage a valid working folder, each returns the flags to use with it; bad states of checkpoints; texts
that forge a line or control a terminal, and streams that reject output.

The folder holds x.conf, the scene teapot/ and an empty exp/.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from checkpoint_samples import make_checkpoint
from config_samples import WHOLE
from synthetic_scene import change_cameras, save, write_scene

from models.checkpoints.ours import encoded, save_checkpoint
from models.training.checkpoint import Checkpoint

CONF = WHOLE.replace("./exp/x", "./exp").replace("./public_data/x/", "./teapot")
NPZ = "teapot/cameras_sphere.npz"
PICTURE = "teapot/image/001.png"
MASK = "teapot/mask/001.png"
OURS = "ckpt_000003.safetensors"
SAME = np.full((24, 32, 3), 9, np.uint8)
NOISE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
GOOD_PNG = cv2.imencode(".png", NOISE)[1].tobytes()
GOOD_JPEG = cv2.imencode(".jpg", NOISE)[1].tobytes()

TO_MESH = ("--mode", "validate_mesh", "--checkpoint")

Change = Callable[[Path], list[str] | None]


def flags(*argv: str) -> Change:
    """Nothing but flags."""
    return lambda folder: list(argv)


def setting(text: str) -> Change:
    """One --set."""
    return flags("--set", text)


def conf(text: str) -> Change:
    """The conf with lines added."""
    return content("x.conf", (CONF + "\n" + text).encode())


def content(name: str, data: bytes) -> Change:
    """A file of these bytes."""
    return lambda folder: (folder / name).write_bytes(data) and None


def cameras(**changes: object) -> Change:
    """Other matrices; None for none."""
    return lambda folder: change_cameras(folder / "teapot", **changes)


def members(compression: int = zipfile.ZIP_STORED, **named: bytes) -> Change:
    """A camera file of .npy members with this content."""

    def change(folder: Path) -> None:
        with zipfile.ZipFile(folder / NPZ, "w", compression) as archive:
            for name, data in named.items():
                archive.writestr(f"{name}.npy", data)

    return change


def npy(array: np.ndarray) -> bytes:
    """A .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def header(text: str) -> bytes:
    """A .npy file with this header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def understated(folder: Path) -> None:
    """The archive with a member of 64 MiB, whose directory entry states 100 bytes."""
    data = (folder / NPZ).read_bytes().replace(struct.pack("<I", 1 << 26), struct.pack("<I", 100))
    (folder / NPZ).write_bytes(data)


def jpeg_size(width: int, height: int) -> bytes:
    """A JPEG whose frame header claims another size."""
    at = GOOD_JPEG.index(b"\xff\xc0") + 5
    return GOOD_JPEG[:at] + struct.pack(">HH", height, width) + GOOD_JPEG[at + 4 :]


def picture(name: str, samples: np.ndarray) -> Change:
    """A picture in the place of another."""
    return lambda folder: save(folder / name, samples)


def sparse(name: str, size: int) -> Change:
    """A file that seems `size` bytes long."""
    return lambda folder: os.truncate(folder / name, size)


def masks(value: int) -> Change:
    """All masks of one value."""
    return then(*(picture(f"teapot/mask/00{view}.png", np.full((24, 32), value, np.uint8)) for view in range(4)))


def no_masks(folder: Path) -> None:
    """A scene without its masks."""
    shutil.rmtree(folder / "teapot/mask")


def evil_name(folder: Path) -> None:
    """A photograph that is a text, with a name that steers a shell and a terminal."""
    (folder / PICTURE).unlink()
    (folder / "teapot/image/001 $(touch sprung);\n\x1b[2J.png").write_bytes(b"hello")


def pipe(name: str) -> Change:
    """A named pipe without a writer."""
    return lambda folder: os.mkfifo(folder / name)


def listener(name: str) -> Change:
    """A socket in the file system."""

    def change(folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(folder):  # a socket's path is short
            server.bind(name)

    return change


def removed(name: str) -> Change:
    """A file that is not there."""
    return lambda folder: (folder / name).unlink()


def checkpoint(name: str, data: bytes | Checkpoint) -> Change:
    """A checkpoint to render from, in a file of this name."""

    def change(folder: Path) -> list[str]:
        if isinstance(data, bytes):
            (folder / name).write_bytes(data)
        else:
            save_checkpoint(folder, data).rename(folder / name)
        return [*TO_MESH, name]

    return change


def going_on(data: Checkpoint, *argv: str) -> Change:
    """A training that goes on from a checkpoint elsewhere."""

    def change(folder: Path) -> list[str]:
        return ["--checkpoint", str(save_checkpoint(folder / "other", data).relative_to(folder)), *argv]

    return change


def beside(checkpoint: Checkpoint, *changes: Change) -> Change:
    """Changes beside a checkpoint that fits; the flags are those of the last change."""

    def change(folder: Path) -> list[str]:
        save_checkpoint(folder / "exp/checkpoints", checkpoint)
        return then(*changes)(folder)

    return change


def good_checkpoint() -> bytes:
    """The bytes of a small checkpoint of ours."""
    return encoded(make_checkpoint())


def stateful(**changes: object) -> Checkpoint:
    """A checkpoint of ours with other parts, under a digest that fits."""
    whole = make_checkpoint()
    parts = {key: getattr(whole, key) for key in ("step", "tensors", "moments", "adam_steps", "state")}
    return Checkpoint(**(parts | changes))


def then(*changes: Change) -> Change:
    """Changes one after the other; the last one's flags count."""

    def change(folder: Path) -> list[str] | None:
        return [each(folder) for each in changes][-1]

    return change


def link(name: str, target: str) -> Change:
    """A symbolic link."""
    return lambda folder: (folder / name).symlink_to(target)


def hard_link(name: str, target: str) -> Change:
    """A second name of a file."""
    return lambda folder: (folder / name).hardlink_to(folder / target)


def folder_named(name: str) -> Change:
    """A folder, with those above it."""
    return lambda folder: (folder / name).mkdir(parents=True)


def comparing(assignment: str) -> Change:
    """Evaluate with this key of the dataset."""
    return flags("--mode", "evaluate", "--set", f"dataset.{assignment}")


def other_frame(folder: Path) -> None:
    """A scene other/ in a world of another scale."""
    write_scene(folder / "other", scale_mat=np.diag([5.0, 5.0, 5.0, 1.0]))


EYE = np.eye(4).tolist()
GOOD_STATE = {"seconds": 1.5, "scene_to_world": EYE}
INF, NAN = float("inf"), float("nan")


FORGED = "2026-01-01T00:00:00+00:00 INFO trained to step 9"
# Each breaks a line, or steers a terminal, somewhere: C0, C1, Unicode's separators, bidirectional and invisible
# characters, and what stands for a byte of a file name that is no UTF-8.
BREAKING = [*"\n\r\x1c\x85\u2028\b\0\u202e\u200b\U000e0041\udc9b", "\x1b[2J", "\x9b2J"]
BREAKING = {ascii(text): text for text in BREAKING}


def broken_stream(error: Exception) -> io.StringIO:
    """A stream that rejects all output."""

    def fail(*given: object) -> int:
        raise error

    stream = io.StringIO()
    stream.write = stream.flush = fail
    return stream


def broken_streams() -> dict[str, io.TextIOBase | None]:
    """Name -> a stream that is gone, each in another way."""
    closed = io.StringIO()
    closed.close()
    errors = {number: OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EPIPE, errno.EAGAIN)}
    streams = {type(error).__name__: broken_stream(error) for error in errors.values()}
    streams["not for writing"] = broken_stream(io.UnsupportedOperation("not writable"))
    streams["refuses the encoding"] = broken_stream(UnicodeEncodeError("ascii", "\xe9", 0, 1, "refused"))
    return {"missing": None, "closed": closed} | streams

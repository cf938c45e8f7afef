"""Changes that damage a valid working folder; each returns the flags to use with it.

The folder holds x.conf, the scene teapot/ and an empty exp/.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from checkpoint_samples import make_checkpoint
from config_samples import WHOLE
from synthetic_scene import change_cameras, save, write_scene

from models.checkpoints.ours import Checkpoint, encoded, save_checkpoint

CONF = WHOLE.replace("./exp/x", "./exp").replace("./public_data/x/", "./teapot")
NPZ = "teapot/cameras_sphere.npz"
PICTURE = "teapot/image/001.png"
MASK = "teapot/mask/001.png"
SAME = np.full((24, 32, 3), 9, np.uint8)
NOISE = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
GOOD_PNG = cv2.imencode(".png", NOISE)[1].tobytes()
GOOD_JPEG = cv2.imencode(".jpg", NOISE)[1].tobytes()

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


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    """A .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def claiming(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    """A .npy header of this shape, with nothing behind it."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def header(text: str) -> bytes:
    """A .npy file with this header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def understated(folder: Path) -> None:
    """An archive member of 64 MiB whose directory entry states 100 bytes."""
    members(zipfile.ZIP_DEFLATED, world_mat_0=bytes(1 << 26))(folder)
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

    def change(folder: Path) -> None:
        with open(folder / name, "ab") as file:
            file.truncate(size)

    return change


def masks(value: int) -> Change:
    """All masks of one value."""

    def change(folder: Path) -> None:
        for path in (folder / "teapot/mask").iterdir():
            save(path, np.full((24, 32), value, np.uint8))

    return change


def renamed(old: str, new: str) -> Change:
    """A file under another name."""
    return lambda folder: os.rename(folder / old, folder / new)


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
        return ["--mode", "validate_mesh", "--checkpoint", name]

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

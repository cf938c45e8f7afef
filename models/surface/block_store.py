"""Finished blocks on the disk, so that a mesh that was interrupted goes on where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data.errors import UserError
from data.io.files import write_result
from data.io.npz import NpzError, read_members
from models.surface.samples import BLOCK, Grid

# A block that a plain surface crosses: 1.5 vertices for each of its 64 x 64 columns, 24 bytes each, and two triangles
# of 12 bytes each; and the same again in the mesh file. Curved ones have up to twice as many.
BYTES_PER_BLOCK = 2 * 64 * 64 * 1.5 * (24 + 2 * 12) * 2

MOST_BYTES = 1 << 28  # of an array of a block: one that the surface goes through in every cell takes half of it

Key = tuple[int, int, int]  # of a block, in blocks from the first corner


@dataclass(frozen=True)
class Patch:
    """The surface in a block, and what its neighbours have to know."""

    vertices: np.ndarray  # float64 [V, 3], in cells from the corner of the grid
    faces: np.ndarray  # int32 [F, 3]
    signs: np.ndarray  # bool [3, 2, B + 1, B + 1]: which points of its six faces lie inside
    forced: np.ndarray  # bool [K]^3: coarse cells that were evaluated whole
    steepest: float  # slope that was seen
    allowed: float  # slope up to which the block is right


class Kept:
    """The patches of one extraction in a folder; where there is none, nothing is kept."""

    def __init__(self, folder: Path | None, coarse: np.ndarray, grid: Grid) -> None:
        """The folder may hold those of other extractions too, which are told apart by their coarse values."""
        words = (coarse.tobytes(), grid.low.tobytes(), grid.high.tobytes(), f"{grid.resolution} {grid.stride}".encode())
        self._folder = folder and folder / hashlib.sha256(b"".join(words)).hexdigest()[:16]

    def require_space(self, blocks: int) -> None:
        """Raises UserError where the disk has no room for this many blocks."""
        if self._folder is None:
            return
        place = next(parent for parent in self._folder.absolute().parents if parent.is_dir())
        free, needed = shutil.disk_usage(place).free, BYTES_PER_BLOCK * (blocks - self._count())
        if free < needed:
            raise UserError(
                f"{self._folder.parent}: the mesh takes about {needed / 1e9:.1f} GB of disk and {free / 1e9:.1f} GB "
                "are free; make room, or lower --resolution"
            )

    def load(self, key: Key) -> Patch | None:
        """What was kept of a block; None where nothing was, or it cannot be read."""
        if self._folder is None:
            return None
        try:
            found = read_members(self._path(key), None, MOST_BYTES)
            patch = Patch(**found | {name: float(found[name]) for name in ("steepest", "allowed")})
        except (OSError, NpzError, KeyError, TypeError):
            return None
        fits = patch.signs.shape == (3, 2, BLOCK + 1, BLOCK + 1) and patch.faces.max(initial=-1) < len(patch.vertices)
        return patch if fits else None

    def save(self, key: Key, patch: Patch) -> None:
        """Keep a block; raises UserError where the disk does not take it."""
        if self._folder is not None:
            content = io.BytesIO()
            np.savez(content, **vars(patch))
            write_result(self._path(key), content.getvalue())

    def clear(self) -> None:
        """The mesh is written; nothing is needed any more."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # others may lie there
                self._folder.parent.rmdir()

    def _count(self) -> int:
        """Blocks that are kept already."""
        return len(list(self._folder.glob("*.npz"))) if self._folder and self._folder.is_dir() else 0

    def _path(self, key: Key) -> Path:
        """The file of a block."""
        return self._folder / ("_".join(map(str, key)) + ".npz")

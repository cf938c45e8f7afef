"""Finished blocks on disk, so that an interrupted extraction can be resumed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import INVALID, DamagedError, UserError
from data.io.files import write_result
from data.io.untrusted import read_members
from models.mesh.extraction import BLOCK, Grid

# A block crossed by a flat surface has 1.5 vertices of 24 bytes and two triangles of 12 bytes for each of its 64 x 64
# columns, and the same again in the mesh file. Curved surfaces have up to twice as many.
BYTES_PER_BLOCK = 2 * 64 * 64 * 1.5 * (24 + 2 * 12) * 2

MOST_BLOCK_BYTES = 1 << 28  # bytes of an array of a block; a surface in every cell takes half of it

Key = tuple[int, int, int]  # position of a block, counted in blocks from the first corner


@dataclass(frozen=True)
class Patch:
    """The surface in a block, and the data for its neighbours."""

    vertices: np.ndarray  # float64 [V, 3], in cells from the corner of the grid
    faces: np.ndarray  # int32 [F, 3]
    signs: np.ndarray  # bool [3, 2, B + 1, B + 1]: points of its six faces that are inside
    forced: np.ndarray  # bool [K]^3: coarse cells that were evaluated completely
    steepest: float  # the largest gradient norm found
    allowed: float  # the gradient norm up to which the block is correct


class BlockStore:
    """The patches of one extraction in a folder; without a folder nothing is stored."""

    def __init__(self, folder: Path | None, coarse: np.ndarray, grid: Grid) -> None:
        """The folder may contain other extractions, which differ in a digest of their coarse values."""
        words = (coarse.tobytes(), grid.low.tobytes(), grid.high.tobytes(), f"{grid.resolution} {grid.stride}".encode())
        self._folder = folder and folder / hashlib.sha256(b"".join(words)).hexdigest()[:16]

    def require_space(self, blocks: int) -> None:
        """Raises UserError if the disk has no room for this many blocks."""
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
        """The stored patch of a block; None if there is none or it cannot be read."""
        if self._folder is None:
            return None
        try:
            arrays: dict[str, Any] = read_members(_path(self._folder, key), None, MOST_BLOCK_BYTES)
            patch = Patch(**arrays | {name: float(arrays[name]) for name in ("steepest", "allowed")})
        except (OSError, DamagedError, *INVALID):
            return None
        fits = patch.signs.shape == (3, 2, BLOCK + 1, BLOCK + 1) and patch.faces.max(initial=-1) < len(patch.vertices)
        return patch if fits else None

    def save(self, key: Key, patch: Patch) -> None:
        """Store a block; raises UserError if it cannot be written."""
        if self._folder is not None:
            content = io.BytesIO()
            np.savez(content, **vars(patch))
            write_result(_path(self._folder, key), content.getvalue())

    def clear(self) -> None:
        """Delete the patches, after the mesh was written."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # the folder may contain other extractions
                self._folder.parent.rmdir()

    def _count(self) -> int:
        return len(list(self._folder.glob("*.npz"))) if self._folder and self._folder.is_dir() else 0


def _path(folder: Path, key: Key) -> Path:
    return folder / ("_".join(map(str, key)) + ".npz")

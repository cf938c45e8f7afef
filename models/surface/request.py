"""What mesh is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WORLD, UNIT = "world", "unit"  # --frame: that of the scene's cameras, or that of the unit sphere
# --clean: small pieces go; so does what no camera sees or the masks exclude; so do all pieces but the largest.
PIECES, VIEWS, LARGEST = "pieces", "views", "largest"
VERTEX, TEXTURE, NONE = "vertex", "texture", "none"  # --colour
# Of the meshes that training and evaluate write: the colour network's along the normal, one question to a vertex, where
# photographs take rays to every camera and a minute.
NETWORK = "network"


@dataclass(frozen=True)
class MeshRequest:
    """A mesh as the flags or the conf ask for it. Unless told otherwise: what marching cubes give, and no more."""

    resolution: int  # grid points per axis
    threshold: float | None = None  # the level that is meshed; None for the model's own
    bbox: tuple[float, ...] | None = None  # low corner, high corner, in `frame`; None for the scene's own
    frame: str = WORLD
    is_refined: bool = False  # vertices moved onto the level set, where the field can be followed
    clean: str | None = None
    decimate: int | None = None  # triangles; None for all, or for a texture what texture.TEXTURED_FACES says
    color: str = NONE
    texture_size: int = 0  # texels each way
    output: Path | None = None  # None for meshes/<step>.ply in the experiment's folder

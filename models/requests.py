"""What is asked for: a mesh, a video, metrics. The values of the flags' choices are defined here and nowhere else."""

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
COLOUR, NORMALS, DEPTH, SHAPE, MESH = "colour", "normals", "depth", "shape", "mesh"  # --show
OF_FIELD, OF_MESH = (COLOUR, NORMALS, DEPTH), (SHAPE, MESH)  # rendered by the model itself, and from its mesh


@dataclass(frozen=True)
class MeshRequest:
    """A mesh as the flags or the conf ask for it. Unless set otherwise: what marching cubes give, and no more."""

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


@dataclass(frozen=True)
class VideoRequest:
    """A video along a camera path."""

    shown: tuple[str, ...]  # side by side, from the left
    level: int  # frames are that many times smaller
    output: Path | None  # .mp4, or a folder of PNGs; None: render/<step>_<path>.mp4
    mesh: MeshRequest  # used where one of OF_MESH is shown


@dataclass(frozen=True)
class EvaluationRequest:
    """Metrics of a trained model."""

    mesh: MeshRequest  # what is scored
    gt: Path | None = None
    tau: float | None = None  # in the units of `frame`
    points: Path | None = None
    frame: str = WORLD  # of gt and points
    dtu: Path | None = None
    scan: int | None = None
    csv: Path | None = None  # the table that gets a row; None for the experiment's own

"""Options of the output modes: mesh, video, metrics. The allowed values of the flags are defined here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FRAMES = WORLD, UNIT = "world", "unit"  # --frame: world frame of the cameras, or unit-sphere frame
AXES = Y_AXIS, Z_AXIS = "y", "z"  # --up
# --clean: remove small components; also what no camera sees or the masks exclude; also all but the largest component
CLEANINGS = PIECES, VIEWS, LARGEST = "pieces", "views", "largest"
COLOURS = VERTEX, TEXTURE, NONE = "vertex", "texture", "none"  # --colour
# For meshes of training and evaluate: one colour-network evaluation per vertex. Colours from photographs trace rays to
# every camera and take a minute.
NETWORK = "network"
COLOUR, NORMALS, DEPTH, SHAPE, MESH = "colour", "normals", "depth", "shape", "mesh"  # --show
TEXTURE_SIZE = 2048  # texels per side; about thirty per triangle for 100,000 triangles
ORBIT = "orbit"  # --path
PUBLISHED_RESOLUTION = 512  # https://github.com/Totoro97/NeuS/blob/6e0a230/exp_runner.py, --mode validate_mesh
AUTO, AUTO_MINUTES = "auto", 10.0  # of --minutes, and the most minutes of it
OF_FIELD, OF_MESH = (COLOUR, NORMALS, DEPTH), (SHAPE, MESH)  # rendered by the model, and from its mesh


@dataclass(frozen=True)
class MeshRequest:
    """Options of a mesh, from the flags or the conf. The defaults give the result of marching cubes without closed
    cavities.
    """

    resolution: int  # grid points per axis
    threshold: float | None = None  # level of the surface; None for the default of the model
    bbox: tuple[float, ...] | None = None  # low corner, high corner, in `frame`; None for those of the scene
    frame: str = WORLD
    is_refined: bool = False  # whether vertices are moved onto the level set
    clean: str | None = None
    is_object: bool = False  # whether the ground is removed before small components are
    decimate: int | None = None  # triangles; None for all, or texture.TEXTURED_FACES with a texture
    simplify: float | None = None  # largest distance from the unsimplified surface, in units of `frame`
    is_watertight: bool = False  # whether holes are closed
    color: str = NONE
    texture_size: int = TEXTURE_SIZE  # texels per side
    up: str | None = None  # up axis of the file; None for that of the format
    output: Path | None = None  # None for meshes/<step>.ply in the experiment folder
    mesh_file: Path | None = None  # coloured instead of an extracted mesh, in `frame`

    @property
    def needs_photographs(self) -> bool:
        """Whether photographs give its colours, or their masks decide what is removed."""
        return self.color in (VERTEX, TEXTURE) or self.clean in (VIEWS, LARGEST)


def view_indices(path: str) -> tuple[int, ...]:
    """The photographs of a camera path such as `0,5,9`; () for any other text."""
    parts = path.split(",")
    is_list = len(parts) > 1 and all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts)
    return tuple(map(int, parts)) if is_list else ()


@dataclass(frozen=True)
class VideoRequest:
    """Options of a video along a camera path."""

    path: str = ORBIT  # around the object; or indices of photographs such as "0,5,9"; or a camera-path file
    shown: tuple[str, ...] = (COLOUR,)  # side by side, from the left, of OF_FIELD and OF_MESH
    seconds: float = 4.0  # duration; that of the file for a camera-path file
    fps: float = 24.0  # frames per second, likewise
    level: int | None = None  # reduction factor of the frames; None for the largest that leaves 720 lines, 1 for a file
    output: Path | None = None  # .mp4, or a folder of PNGs; None: render/<step>_<path>.mp4
    mesh: MeshRequest = MeshRequest(PUBLISHED_RESOLUTION, is_refined=True, clean=PIECES)  # if one of OF_MESH is shown


@dataclass(frozen=True)
class EvaluationRequest:
    """Options of the metrics of a trained model."""

    mesh: MeshRequest  # the evaluated mesh
    gt: Path | None = None
    tau: float | None = None  # in units of `frame`
    points: Path | None = None
    frame: str = WORLD  # frame of gt and points
    dtu: Path | None = None
    scan: int | None = None
    csv: Path | None = None  # table to which a row is added; None for that of the experiment
    mesh_file: Path | None = None  # evaluated instead of `mesh`, in `frame`
    up: str | None = None  # up axis of `mesh_file` and `gt` of other programs; None for that of the format
    is_object: bool = False  # `mesh_file` has no ground, so that points on the ground are not evaluated

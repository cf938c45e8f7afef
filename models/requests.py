"""Options of a training and of the output modes: image, mesh, video, metrics.

Types and ranges of their declarations hold for the flags, the Python interface and the viewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data.limits import limits

# --frame: world frame of the cameras, unit-sphere frame, or map grid of reference.json minus its offset
FRAMES = WORLD, UNIT, UTM = "world", "unit", "utm"
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
SHOWN = (*OF_FIELD, *OF_MESH)
DEVICES, LANGUAGES = ("auto", "cpu", "cuda"), ("en", "zh")  # --device, --language
MAX_INT = 2**31 - 1
MAX_RESOLUTION = 2048  # gives tens of millions of triangles and needs 4 GB of memory
LARGEST_TEXTURE = 16384  # the limit of GPUs
FEWEST_FACES = 4  # of a closed surface
SLOWEST, FASTEST = 0.01, 240.0  # frames per second
LONGEST_VIDEO = 1e6  # seconds of a video
LARGEST_SCAN = 128  # of the DTU data set
DEFAULT_FRAMES = 80  # of a video: an orbit in steps of 4.5 degrees, which features match reliably


@dataclass(frozen=True)
class TrainingRequest:
    """Options of a training besides the conf; those of a model are the last ones."""

    is_continue: bool = False  # from the newest checkpoint of the folder, if there is one
    overwrite: bool = False  # start again in a folder with checkpoints, which the first new one replaces
    checkpoint: Path | None = None  # to start from
    device: str = limits("auto", one_of=DEVICES)
    gpu: int = limits(0, at_least=0, at_most=MAX_INT)  # its index
    language: str | None = limits(None, one_of=LANGUAGES)  # of the report; None for that of the browser


@dataclass(frozen=True)
class PreparationRequest:
    """Options of a preparation: photographs, and what is known about them."""

    images: Path  # a folder of photographs, or a video
    masks: str = ""  # a folder of masks, or a method; "" for none
    frames: int = limits(DEFAULT_FRAMES, at_least=3, at_most=MAX_INT)  # to take from a video
    boxes: Sequence[Sequence[str]] = ()  # name, left, top, right, bottom in pixels, for masks by "box"
    marker: float | None = limits(None, above=0)  # side of ArUco or AprilTag markers, metres
    scale: Sequence[str] = ()  # the words of --scale
    is_panorama: bool = False  # all photographs are equirectangular
    cameras: str = ""  # earlier case whose cameras took them; "" for none
    lens: str = ""  # earlier case whose lens took them; "" for none
    overwrite: bool = False  # replace an existing scene


@dataclass(frozen=True)
class ImageRequest:
    """Options of an image."""

    view: int = limits(0, at_least=0, at_most=MAX_INT)  # number of the training photograph
    level: int | None = limits(None, at_least=1, at_most=MAX_INT)  # reduction factor; None for that of the conf


@dataclass(frozen=True)
class MeshRequest:
    """Options of a mesh, from the flags or the conf. The defaults give the result of marching cubes without closed
    cavities.
    """

    resolution: int = limits(at_least=2, at_most=MAX_RESOLUTION)  # grid points per axis
    threshold: float | None = None  # level of the surface; None for the default of the model
    bbox: tuple[float, ...] | None = limits(
        None, count=(6, 6)
    )  # low corner, high corner, in `frame`; None for those of the scene
    frame: str = limits(WORLD, one_of=FRAMES)
    is_refined: bool = False  # whether vertices are moved onto the level set
    clean: str | None = limits(None, one_of=CLEANINGS)
    is_object: bool = False  # whether the ground is removed before small components are
    has_details: bool | None = None  # of full-size photographs; None: `reconstruct` decides, other modes add none
    # triangles; None for all, or texture.TEXTURED_FACES with a texture
    decimate: int | None = limits(None, at_least=FEWEST_FACES, at_most=MAX_INT)
    # largest distance from the unsimplified surface, in units of `frame`
    simplify: float | None = limits(None, above=0)
    is_watertight: bool = False  # whether holes are closed
    color: str = limits(NONE, one_of=(*COLOURS, NETWORK))
    texture_size: int = limits(TEXTURE_SIZE, at_least=1, at_most=LARGEST_TEXTURE)  # texels per side
    up: str | None = limits(None, one_of=AXES)  # up axis of the file; None for that of the format
    output: Path | None = None  # None for meshes/<step>.ply in the experiment folder
    mesh_file: Path | None = None  # coloured instead of an extracted mesh, in `frame`

    @property
    def needs_photographs(self) -> bool:
        """Whether photographs give its colours, or their masks decide what is removed."""
        return self.color in (VERTEX, TEXTURE) or self.clean in (VIEWS, LARGEST) or bool(self.has_details)


def view_indices(path: str) -> tuple[int, ...]:
    """The photographs of a camera path such as `0,5,9`; () for any other text."""
    parts = path.split(",")
    is_list = len(parts) > 1 and all(part.isascii() and part.isdigit() and len(part) <= 10 for part in parts)
    return tuple(map(int, parts)) if is_list else ()


@dataclass(frozen=True)
class VideoRequest:
    """Options of a video along a camera path."""

    path: str = ORBIT  # around the object; or indices of photographs such as "0,5,9"; or a camera-path file
    shown: tuple[str, ...] = limits((COLOUR,), one_of=SHOWN, count=(1, len(SHOWN)))  # side by side, from the left
    seconds: float = limits(4.0, above=0, at_most=LONGEST_VIDEO)  # duration; that of the file for a camera-path file
    fps: float = limits(24.0, at_least=SLOWEST, at_most=FASTEST)  # frames per second, likewise
    # reduction factor of the frames; None for the largest that leaves 720 lines, 1 for a file
    level: int | None = limits(None, at_least=1, at_most=MAX_INT)
    output: Path | None = None  # .mp4, or a folder of PNGs; None: render/<step>_<path>.mp4
    mesh: MeshRequest = MeshRequest(PUBLISHED_RESOLUTION, is_refined=True, clean=PIECES)  # if one of OF_MESH is shown


@dataclass(frozen=True)
class DeviationRequest:
    """Options of the comparison of a mesh with a reference."""

    reference: Path
    in_place: bool = False  # it is in the world frame, and not registered
    tolerance: float | None = limits(None, above=0)  # mm, or units of the scene if its scale is not known


@dataclass(frozen=True)
class EvaluationRequest:
    """Options of the metrics of a trained model."""

    mesh: MeshRequest  # the evaluated mesh
    gt: Path | None = None
    tau: float | None = limits(None, above=0)  # in units of `frame`
    points: Path | None = None
    frame: str = limits(WORLD, one_of=FRAMES)  # frame of gt and points
    dtu: Path | None = None
    scan: int | None = limits(None, at_least=1, at_most=LARGEST_SCAN)
    csv: Path | None = None  # table to which a row is added; None for that of the experiment
    mesh_file: Path | None = None  # evaluated instead of `mesh`, in `frame`
    up: str | None = limits(
        None, one_of=AXES
    )  # up axis of `mesh_file` and `gt` of other programs; None for that of the format
    is_object: bool = False  # `mesh_file` has no ground, so that points on the ground are not evaluated

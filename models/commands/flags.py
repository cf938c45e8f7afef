"""All flags with their texts on the help page, and the types of their values. The modes choose theirs."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.limits import fault, limits_of
from models import requests
from models.requests import (
    AUTO,
    DEFAULT_FRAMES,
    MAX_INT,
    PIECES,
    PUBLISHED_RESOLUTION,
    SHOWN,
    TEXTURE_SIZE,
    DeviationRequest,
    EvaluationRequest,
    ImageRequest,
    MeshRequest,
    PreparationRequest,
    TrainingRequest,
    VideoRequest,
)
from models.viewer.server import FIRST_PORT, LAST_PORT, LOOPBACK, PORT

# The groups of the help page, in its order.
EXPERIMENT, OUTPUT, PREPARATION, MACHINE = "experiment", "output", "preparation", "device"
HELP_GROUPS = (EXPERIMENT, OUTPUT, PREPARATION, MACHINE)
DTU = "dtu"  # --protocol

# Most begin with the modes that use the flag; the page of one mode leaves that out.
HELP = {
    "--mode": "mode of the program, also as the first word (default: train)",
    "--version": "print version and commit",
    "--conf": "conf file (default: ./confs/demo.conf)",
    "--case": "name of the scene folder; replaces CASE_NAME and ${case} in the conf",
    "--set": "override a key of the conf, such as train.end_iter=1000; may be repeated",
    "--roi": "sphere around the object: centre and radius in the world frame; the same as --set dataset.roi=...",
    "--seed": "the same as --set train.seed=N",
    "--device": "auto: a GPU if one works, else the CPU (default: auto)",
    "--gpu": "index of the GPU (default: 0)",
    "--is_continue": "train: resume from the newest complete checkpoint, if any",
    "--overwrite": "start from the beginning: a prepared scene is replaced; earlier checkpoints are deleted when the "
    "first new one is complete (reconstruct: when the training is finished)",
    "--checkpoint": "checkpoint instead of the newest: .safetensors, a published .pth, or Gaussians (.ply; for images "
    "and meshes)",
    "--cases": "train: names of scenes, or a file with one name per line; trained one after the other, under mpirun "
    "one scene per rank at a time",
    "--view": "train, inspect: also start the viewer (requires viser)",
    "--host": f"view, --view: address of the viewer: {LOOPBACK} for this machine only (default), 0.0.0.0 for the "
    "network; the printed address has the token",
    "--port": f"view, --view: port; if in use, the next free one (default: {PORT})",
    "--language": "language of the HTML pages (default: that of the browser)",
    "--resolution": f"validate_mesh, evaluate: grid points per side (default: {PUBLISHED_RESOLUTION})",
    "--mcube_threshold": "validate_mesh, evaluate: extracted level of the negative signed distance (default: 0) or of "
    "the density of a NeRF (default: 25)",
    "--bbox": "validate_mesh: region to extract, two corners in --frame (default: dataset.bbox, else the box around "
    "the region of interest)",
    "--frame": "world frame of the cameras, unit-sphere frame, or map grid of reference.json minus its offset; "
    "validate_mesh: of the output; evaluate: of --mesh, --gt, --tau and --points (default: world)",
    "--up": "validate_mesh: up axis of the file (default: y for .glb, .obj and .usdz, else z); evaluate: of --mesh and "
    "--gt of other programs",
    "--no-refine": "validate_mesh: keep the vertices of marching cubes",
    "--clean": "validate_mesh: pieces: remove components below a hundredth of the area of the largest (default). "
    "views: also triangles that no camera sees or that lie outside the dilated masks. largest: also all components "
    "but the largest",
    "--no-clean": "validate_mesh: keep all components, except closed cavities without a camera",
    "--object": "validate_mesh: remove the ground on which the object stands, and components below a tenth of the "
    "largest; the log says if no ground was found. evaluate: of such a --mesh, points on the ground are not evaluated",
    "--details": "validate_mesh: move the vertices to where full-size photographs agree best, for as much detail as "
    "these show (reconstruct: by default if it is worth the time)",
    "--no-details": "reconstruct: leave the vertices on the surface of the model",
    "--decimate": "validate_mesh: reduce to about N triangles (default: no reduction; 100000 with a texture)",
    "--simplify": "validate_mesh: reduce to the fewest triangles within this distance of the surface, in units of "
    "--frame",
    "--watertight": "validate_mesh: close the holes, for 3D printing; the log gives their number and area",
    "--colour": "validate_mesh: colours from the photographs (default: vertex, if the format supports it; texture for "
    ".usdz)",
    "--texture_size": f"validate_mesh: texels per side of the texture (default: {TEXTURE_SIZE})",
    "--mesh": "validate_mesh, evaluate, inspect: mesh in --frame to colour (without a checkpoint), to evaluate or to "
    "compare, .ply, .obj, .stl or .glb (default: it is extracted; inspect: result/mesh.ply)",
    "--output": "output file. validate_mesh: .ply, .obj, .glb, .stl, .usdz or .3mf (default: meshes/<step>.ply, .glb "
    "with a texture). render: .mp4, or a folder for PNGs (default: in render/). compare: .html (default: compare.html "
    "in the first experiment)",
    "--image": "validate_image: number of the training photograph (default: 0)",
    "--resolution_level": "validate_image, render, interpolate: reduction factor, 1: full size (default: "
    "train.validate_resolution_level; for videos the largest that leaves 720 lines; 1 for a camera-path file)",
    "--path": "render: orbit, photographs such as 0,5,9, or a camera-path file, also of nerfstudio (default: orbit)",
    "--show": f"render: comma-separated images, shown side by side: {', '.join(SHOWN)} (default: colour); shape is "
    "the shaded mesh, mesh the coloured mesh",
    "--seconds": f"render: duration in seconds (default: {VideoRequest.seconds:g}, or that of the camera-path file)",
    "--fps": f"render: frames per second (default: {VideoRequest.fps:g}, or those of the camera-path file)",
    "--gt": "evaluate: ground truth in --frame, a mesh (.ply, .obj, .stl, .glb) or a point cloud (.ply) (default: "
    "dataset.reference_mesh)",
    "--tau": "evaluate: threshold of the F-score, in units of --frame (default: 0.01 radii of the region of interest)",
    "--measure": "inspect: only print the distance of two points of the world frame, `x y z, x y z`, with the error of "
    "the scale",
    "--compare": "inspect: only measure the deviation of the mesh from this one, such as a CAD model, after rigid "
    "registration: inspect/deviation.ply, .png and .json",
    "--in_place": "inspect --compare: the reference is in the world frame; do not register",
    "--tolerance": "inspect --compare: in mm, or units of the scene without scale (default: 0.005 of the extent of the "
    "reference)",
    "--points": "evaluate: SfM points in --frame, .ply (default: those of the scene)",
    "--protocol": "evaluate: the published DTU protocol, in millimetres; requires --dtu",
    "--dtu": "evaluate: folder with ObsMask/ and Points/stl/",
    "--scan": "evaluate: number of the DTU scan (default: the number after scan in the scene name)",
    "--csv": "evaluate: table to which a row is added; experiments may share it (default: report/metrics.csv)",
    "--experiments": "compare: experiment folders; the name of this flag may be omitted",
    "--images": "prepare, reconstruct: folder of photographs, or a video",
    "--masks": "prepare, reconstruct: folder of masks named as the photographs, or colorkey (backdrop of one colour), "
    "grabcut, box (rectangles on a few photographs) or rembg (if installed)",
    "--box": "prepare, reconstruct: with --masks box, a rectangle around the object: left, top, right, bottom in "
    "pixels; may be repeated; more are read from boxes.json",
    "--marker": "prepare, reconstruct: side in metres of ArUco or AprilTag markers, which give the scale",
    "--cameras": "prepare, reconstruct: earlier case, or scene folder, whose rig of cameras took the photographs; "
    "they belong together by names, else by order",
    "--lens": "prepare, reconstruct: earlier case, or scene folder, whose lens took the photographs, kept constant",
    "--scale": "prepare, reconstruct: known lengths in metres, between two points of the world frame, `x y z x y z "
    "LENGTH`, or in the pixels of two photographs, `IMAGE x y x y IMAGE x y x y LENGTH`",
    "--panorama": "prepare, reconstruct: photographs or frames are equirectangular panoramas and are cut into "
    "perspective views; tagged ones are recognised without it",
    "--frames": f"prepare, reconstruct: number of frames to use from a video (default: {DEFAULT_FRAMES})",
    "--minutes": f"reconstruct: minutes of the whole command; {AUTO} (default): until doubling the steps hardly "
    f"improves the PSNR, at most {requests.AUTO_MINUTES:g}",
}


@dataclass(frozen=True)
class Flag:
    """A flag; modes that share it use the same object."""

    name: str  # with its dashes
    group: str
    options: Mapping[str, Any]  # of argparse's `add_argument`
    elsewhere: str | None = None  # the end of the error with another mode; None: has no effect there, after --mode


def flag(name: str, group: str, elsewhere: str | None = None, **options: Any) -> Flag:
    """A flag with options of argparse's `add_argument`; its help is that of `HELP` unless it is given."""
    return Flag(name, group, {"help": HELP.get(name), **options}, elsewhere)


def whole(least: int, most: int = MAX_INT) -> Callable[[str], int]:
    """An argparse type: an integer in least..most."""

    def convert(text: str) -> int:
        digits = text.removeprefix("-")
        if not is_index(digits) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number in {least}..{most}")
        return int(text)

    return convert


def finite(text: str) -> float:
    """An argparse type: a finite number, as ASCII text without underscores."""
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def value_of(kind: type, name: str) -> Callable[[str], Any]:
    """An argparse type: a number in the range that the dataclass `kind` declares for its field `name`."""
    declared = limits_of(kind, name)
    if declared.get("at_least") is not None and isinstance(declared["at_least"], int):
        return whole(declared["at_least"], declared.get("at_most") or MAX_INT)

    def convert(text: str) -> float:
        if wrong := fault(value := finite(text), declared):
            raise argparse.ArgumentTypeError(f"{text!r} {wrong}")
        return value

    return convert


def is_index(text: str) -> bool:
    """Whether the text is a decimal integer, short enough for an index."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INT))


# The flags of all modes; in each group the modes' own flags follow, in the order of the table.
COMMON = (
    flag("--mode", EXPERIMENT, default="train", metavar="MODE"),
    flag("--version", EXPERIMENT, action="store_true"),
    flag("--conf", EXPERIMENT, type=Path, metavar="FILE"),
    flag("--case", EXPERIMENT, default="", metavar="NAME"),
    flag("--set", EXPERIMENT, dest="overrides", action="append", default=[], metavar="KEY=VALUE"),
    flag("--roi", EXPERIMENT, metavar='"X Y Z R"'),
    flag("--seed", EXPERIMENT, type=whole(0), metavar="N"),
    flag("--device", MACHINE, choices=requests.DEVICES, default="auto"),
    flag("--gpu", MACHINE, type=value_of(TrainingRequest, "gpu"), default=0, metavar="N"),
)
IS_CONTINUE = flag("--is_continue", EXPERIMENT, action="store_true")
OVERWRITE = flag("--overwrite", EXPERIMENT, action="store_true")
CHECKPOINT = flag("--checkpoint", EXPERIMENT, type=Path, metavar="FILE")
CASES = flag("--cases", EXPERIMENT, "", metavar="A,B,C")
EXPERIMENTS = flag("--experiments", EXPERIMENT, "", type=Path, nargs="+", metavar="EXP")
MEASURE = flag("--measure", OUTPUT, metavar='"X Y Z, X Y Z"')
DEVIATION = (
    flag("--compare", OUTPUT, dest="reference", type=Path, metavar="FILE"),
    flag("--in_place", OUTPUT, action="store_true"),
    flag("--tolerance", OUTPUT, type=value_of(DeviationRequest, "tolerance"), metavar="X"),
)
LANGUAGE = flag("--language", OUTPUT, choices=requests.LANGUAGES)
VIEWER = (
    flag("--view", OUTPUT, "; --mode view shows a trained model", action="store_true"),
    flag("--host", OUTPUT, default=LOOPBACK, metavar="ADDRESS"),
    flag("--port", OUTPUT, type=whole(FIRST_PORT, LAST_PORT), default=PORT, metavar="N"),
    LANGUAGE,
)
RESOLUTION = (
    flag("--resolution", OUTPUT, type=value_of(MeshRequest, "resolution"), default=PUBLISHED_RESOLUTION, metavar="N"),
    flag("--mcube_threshold", OUTPUT, dest="threshold", type=finite, metavar="X"),
)
FRAME = flag("--frame", OUTPUT, choices=requests.FRAMES, default=requests.WORLD)
UP = flag("--up", OUTPUT, choices=requests.AXES)
OBJECT_ONLY = flag("--object", OUTPUT, dest="is_object", action="store_true")
MESH = (
    *RESOLUTION,
    flag("--bbox", OUTPUT, nargs=6, type=finite, metavar=("X0", "Y0", "Z0", "X1", "Y1", "Z1")),
    FRAME,
    UP,
    flag("--no-refine", OUTPUT, dest="is_refined", action="store_false"),
    flag("--clean", OUTPUT, nargs="?", const=PIECES, default=PIECES, choices=requests.CLEANINGS),
    flag("--no-clean", OUTPUT, dest="clean", action="store_const", const=None),
    OBJECT_ONLY,
    flag("--details", OUTPUT, "", dest="has_details", action="store_true", default=None),
    flag("--no-details", OUTPUT, "", dest="has_details", action="store_false", default=None),
    flag("--decimate", OUTPUT, type=value_of(MeshRequest, "decimate"), metavar="N"),
    flag("--simplify", OUTPUT, type=value_of(MeshRequest, "simplify"), metavar="ERROR"),
    flag("--watertight", OUTPUT, dest="is_watertight", action="store_true"),
    flag("--colour", OUTPUT, choices=requests.COLOURS),
    flag("--texture_size", OUTPUT, type=value_of(MeshRequest, "texture_size"), default=TEXTURE_SIZE, metavar="N"),
)
MESH_FILE = flag("--mesh", OUTPUT, dest="mesh_file", type=Path, metavar="FILE")
OUTPUT_FILE = flag("--output", OUTPUT, type=Path, metavar="FILE")
IMAGE = flag("--image", OUTPUT, type=value_of(ImageRequest, "view"), default=0, metavar="N")
LEVEL = flag("--resolution_level", OUTPUT, type=value_of(ImageRequest, "level"), metavar="L")
VIDEO = (
    flag("--path", OUTPUT, default=requests.ORBIT, metavar="PATH"),
    flag("--show", OUTPUT, default="colour", metavar="LIST"),
    flag("--seconds", OUTPUT, type=value_of(VideoRequest, "seconds"), metavar="S"),
    flag("--fps", OUTPUT, type=value_of(VideoRequest, "fps"), metavar="N"),
)
EVALUATION = (
    flag("--gt", OUTPUT, type=Path, metavar="FILE"),
    flag("--tau", OUTPUT, type=value_of(EvaluationRequest, "tau"), metavar="X"),
    flag("--points", OUTPUT, type=Path, metavar="FILE"),
    flag("--protocol", OUTPUT, choices=(DTU,)),
    flag("--dtu", OUTPUT, type=Path, metavar="FOLDER"),
    flag("--scan", OUTPUT, type=value_of(EvaluationRequest, "scan"), metavar="N"),
    flag("--csv", OUTPUT, type=Path, metavar="FILE"),
)
BOX = ("NAME", "X0", "Y0", "X1", "Y1")
PHOTOGRAPHS = (
    flag("--images", PREPARATION, "", type=Path, metavar="PATH"),
    flag("--masks", PREPARATION, "", default="", metavar="SOURCE"),
    flag("--box", PREPARATION, "", dest="boxes", nargs=5, action="append", default=[], metavar=BOX),
    flag("--marker", PREPARATION, "", type=value_of(PreparationRequest, "marker"), metavar="SIDE"),
    flag("--scale", PREPARATION, "", nargs="+", metavar="VALUE"),
    flag("--cameras", PREPARATION, "", default="", metavar="CASE"),
    flag("--lens", PREPARATION, "", default="", metavar="CASE"),
    flag("--panorama", PREPARATION, "", dest="is_panorama", action="store_true"),
    flag("--frames", PREPARATION, type=value_of(PreparationRequest, "frames"), default=DEFAULT_FRAMES, metavar="N"),
)
INSTEAD = "; for other modes set train.end_iter"
MINUTES = flag("--minutes", PREPARATION, INSTEAD, type=lambda text: AUTO if text == AUTO else finite(text), metavar="M")
# The flags of each mode besides COMMON.
OF_MODE: dict[str, tuple[Flag, ...]] = {
    "train": (IS_CONTINUE, OVERWRITE, CHECKPOINT, CASES, *VIEWER),
    "validate_mesh": (CHECKPOINT, *MESH, MESH_FILE, OUTPUT_FILE),
    "validate_image": (CHECKPOINT, IMAGE, LEVEL),
    "interpolate": (CHECKPOINT, LEVEL),
    "render": (CHECKPOINT, *RESOLUTION, OUTPUT_FILE, LEVEL, *VIDEO),
    "evaluate": (CHECKPOINT, *RESOLUTION, FRAME, UP, MESH_FILE, OBJECT_ONLY, *EVALUATION, LANGUAGE),
    "export_splats": (CHECKPOINT,),
    "compare": (EXPERIMENTS, OUTPUT_FILE, LANGUAGE),
    "view": (CHECKPOINT, *VIEWER),
    "prepare": (OVERWRITE, *PHOTOGRAPHS),
    "reconstruct": (MINUTES, OVERWRITE, *PHOTOGRAPHS, *MESH, LANGUAGE),
    "inspect": (MEASURE, *DEVIATION, MESH_FILE, *VIEWER),
    "plan": (),
    "doctor": (),
}

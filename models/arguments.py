"""The arguments of the command line: the help page, and the checks that need nothing but the arguments."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from data.errors import UserError
from data.io.streams import say
from models.argument_types import MAX_INT, finite, is_index, whole
from models.config.strict import nearest
from models.prepare_flags import add_prepare_flags, check_prepare

PLAIN_MODES = ("train", "validate_mesh", "validate_image", "evaluate", "prepare", "inspect", "plan", "replay")
MODE_NAMES = (*PLAIN_MODES, "interpolate_I_J")
PUBLISHED_RESOLUTION = 512  # https://github.com/Totoro97/NeuS/blob/6e0a230/exp_runner.py, --mode validate_mesh
MAX_RESOLUTION = 2048  # a float32 grid of 2048^3 points already takes 34 GB

DESCRIPTION = """\
NeuS and NeRF in Jittor: posed photographs in, a triangle mesh and new views out.

modes:
  train             optimise the scene of the conf; writes checkpoints, images and meshes as it goes
  validate_mesh     write the surface of a checkpoint as a mesh, in world coordinates
  validate_image    render the view of one photograph: picture, ground truth, normals, distance
  interpolate_I_J   write a video from photograph I to photograph J and back, such as interpolate_0_5
  evaluate          PSNR on held-out photographs and Chamfer distance to a reference mesh, where the conf names them
  prepare           photographs or a video without cameras (--images) become the scene folder ./public_data/NAME
  inspect           overview.png, cameras and photographs with the region of interest, and a table of what may go wrong
  plan              a table of memory and speed over n_importance, measured on this machine; nothing is written
  replay            compute a step again that a training skipped because its numbers were not finite (--replay FILE)

All modes but train, prepare, inspect, plan and replay need a checkpoint: the newest one in the experiment folder, or
that of --checkpoint.
"""

EPILOG = """\
examples:
  python exp_runner.py                                                  train on the bundled scene
  python exp_runner.py --mode validate_mesh                             its mesh, from the newest checkpoint
  python exp_runner.py --mode prepare --images photos --case bear       photographs become ./public_data/bear
  python exp_runner.py --conf confs/wmask.conf --case bear              train on ./public_data/bear
  python exp_runner.py --conf confs/wmask.conf --case bear --is_continue
  python exp_runner.py --conf confs/wmask.conf --case bear --mode inspect
  python exp_runner.py --conf confs/wmask.conf --case bear --mode plan
  python exp_runner.py --conf confs/wmask.conf --case bear --mode interpolate_0_5
  python exp_runner.py --set train.end_iter=500 --set train.batch_size=128 --seed 7
  python exp_runner.py --conf confs/wmask.conf --case bear --mode validate_mesh --checkpoint ckpt_300000.pth

Paths in a conf are relative to the folder the program is started in. Where that folder has no confs/demo.conf, the
default conf and the bundled scene are taken from the program's own folder; the results still go to ./exp/demo.
The keys of a conf, with units and ranges, are explained in confs/base/.

exit status: 0 done; 1 no surface, or not finite; 2 a mistake in a flag, conf, scene or checkpoint;
129, 130, 143 interrupted by SIGHUP (a closed terminal), SIGINT (Ctrl-C), SIGTERM
"""


@dataclass(frozen=True)
class Mode:
    """What to do; views holds the two photograph numbers of `interpolate` and is empty otherwise."""

    name: str
    views: tuple[int, ...] = ()


@dataclass(frozen=True)
class Arguments:
    """The checked command line; None where a flag was not given and the conf decides."""

    mode: Mode
    conf: Path | None
    case: str
    overrides: tuple[str, ...]
    is_continue: bool
    overwrite: bool
    checkpoint: Path | None
    replay: Path | None
    threshold: float | None
    resolution: int
    image: int
    resolution_level: int | None
    device: str
    gpu: int
    images: Path | None
    masks: str
    frames: int


def parse_mode(text: str) -> Mode:
    """The mode a --mode value names; raises UserError, naming the nearest mode, for any other text."""
    if text in PLAIN_MODES:
        return Mode(text)
    name, *views = text.split("_")
    if name == "interpolate" and len(views) == 2 and all(is_index(view) for view in views):
        return Mode(name, (int(views[0]), int(views[1])))
    if name == "interpolate":
        raise UserError(f"--mode {text}: write it as interpolate_I_J with two photograph numbers, as interpolate_0_5")
    raise UserError(f"--mode {text}: unknown mode{nearest(text, MODE_NAMES)}")


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """The command line without the program's name; raises UserError for anything wrong in it.

    --help prints its page and raises SystemExit(0), as argparse does.
    """
    parser = _make_parser()
    values, unknown = parser.parse_known_args(argv)
    if values.mode == "replay" and values.replay is None and len(unknown) == 1 and not unknown[0].startswith("-"):
        values.replay, unknown = Path(unknown[0]), []  # `--mode replay FILE` reads best
    if unknown:
        raise UserError(f"{unknown[0]}: unknown argument{_flag_hint(unknown[0], parser)}")
    if values.checkpoint is not None and not os.path.isfile(values.checkpoint):  # Path.is_file raises on a long name
        raise UserError(f"--checkpoint {values.checkpoint}: no such file")
    if values.overwrite and values.is_continue:
        raise UserError("--overwrite, --is_continue: one starts afresh, the other goes on; give only one of them")
    _check_replay(values.mode, values.replay)
    check_prepare(values)
    short = {"train.seed": values.seed, "dataset.roi": values.roi}
    short_forms = tuple(f"{key}={value}" for key, value in short.items() if value is not None)
    return Arguments(
        mode=parse_mode(values.mode),
        conf=values.conf,
        case=values.case,
        overrides=(*values.overrides, *short_forms),
        is_continue=values.is_continue,
        overwrite=values.overwrite,
        checkpoint=values.checkpoint,
        replay=values.replay,
        threshold=values.mcube_threshold,
        resolution=values.resolution,
        image=values.image,
        resolution_level=values.resolution_level,
        device=values.device,
        gpu=values.gpu,
        images=values.images,
        masks=values.masks,
        frames=values.frames,
    )


def _check_replay(mode: str, replay: Path | None) -> None:
    """Raises UserError where the mode replay has no file, the file no mode replay, or the disk no file."""
    if (mode == "replay") != (replay is not None):
        raise UserError("--mode replay, --replay FILE: one needs the other; FILE is one from the folder anomalies/")
    if replay is not None and not os.path.isfile(replay):
        raise UserError(f"--replay {replay}: no such file")


class _Parser(argparse.ArgumentParser):
    """argparse whose complaints are UserErrors, so that every mistake is reported in one way."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError with argparse's own words."""
        raise UserError(f"{message.removeprefix('argument ')}; --help explains the flags")

    def _print_message(self, message: str, file: object = None) -> None:
        """The help page, which is all that argparse prints here."""
        say(*message.rstrip("\n").split("\n"))


def _make_parser() -> argparse.ArgumentParser:
    """Every flag, grouped by what it is for."""
    parser = _Parser(
        prog="exp_runner.py",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_experiment_flags(parser.add_argument_group("which experiment"))
    _add_output_flags(parser.add_argument_group("what to write"))
    add_prepare_flags(parser.add_argument_group("what to prepare"))
    _add_machine_flags(parser.add_argument_group("where to run"))
    return parser


def _add_experiment_flags(group: argparse._ArgumentGroup) -> None:
    """Mode, conf, checkpoint."""
    add = group.add_argument
    add("--mode", default="train", metavar="MODE", help="what to do, see above (default: train)")
    add("--conf", type=Path, metavar="FILE", help="the conf (default: ./confs/demo.conf)")
    add(
        "--case", default="", metavar="NAME", help="replaces CASE_NAME and ${case} in the conf: the scene's folder name"
    )
    add(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace one value of the conf, such as train.end_iter=1000; may be repeated",
    )
    add(
        "--roi",
        metavar='"X Y Z R"',
        help="region of interest: centre and radius of a sphere around the object, in the world frame of the cameras; "
        "the same as --set dataset.roi=...",
    )
    add("--seed", type=whole(0, MAX_INT), metavar="N", help="the same as --set train.seed=N")
    add("--is_continue", action="store_true", help="train: go on from the newest complete checkpoint, if there is one")
    add(
        "--overwrite",
        action="store_true",
        help="train: start afresh in a folder that holds checkpoints; they go once the first new one is complete. "
        "prepare: replace the scene",
    )
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="use this checkpoint, ours (.safetensors) or one of the published code (.pth), instead of the newest",
    )
    add("--replay", type=Path, metavar="FILE", help="replay: a file from the folder anomalies/ of a training")


def _add_output_flags(group: argparse._ArgumentGroup) -> None:
    """What the modes after training write."""
    add = group.add_argument
    add(
        "--resolution",
        type=whole(2, MAX_RESOLUTION),
        default=PUBLISHED_RESOLUTION,
        metavar="N",
        help=f"validate_mesh: grid points per side (default: {PUBLISHED_RESOLUTION})",
    )
    add(
        "--mcube_threshold",
        type=finite,
        metavar="X",
        help="validate_mesh, evaluate: the level that is meshed, of minus the signed distance (default: 0) or of a "
        "NeRF's density (default: 25)",
    )
    add("--image", type=whole(0, MAX_INT), default=0, metavar="N", help="validate_image: photograph (default: 0)")
    add(
        "--resolution_level",
        type=whole(1, MAX_INT),
        metavar="L",
        help="validate_image: L times smaller than the photograph, 1 for full size "
        "(default: train.validate_resolution_level of the conf)",
    )


def _add_machine_flags(group: argparse._ArgumentGroup) -> None:
    """The device."""
    group.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto: a GPU where there is one that works (default: auto)",
    )
    group.add_argument("--gpu", type=whole(0, MAX_INT), default=0, metavar="N", help="which GPU (default: 0)")


def _flag_hint(argument: str, parser: argparse.ArgumentParser) -> str:
    """The flag that was probably meant."""
    flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    return nearest(argument.partition("=")[0], flags)

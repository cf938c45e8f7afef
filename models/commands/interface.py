"""The Python interface: from photographs to cameras, a trained model, its images, meshes and metrics.

`reconstruct` does all of it; every other function takes a conf of `read_conf`, or a model of `open_model`. Results are
in the conf's `general.base_exp_dir`. Nothing is printed: `with telling(print):` passes each line that the command line
would print. Mistakes in the conf, the scene or the arguments raise `data.errors.UserError` with one sentence that names
the fix, before Jittor is loaded where possible. `device`: "auto" (a GPU if one works, else the CPU), "cpu" or "cuda";
`gpu`: the index of the GPU.

Frames: the world frame is that of the given cameras, with their units; in the working frame, the region of interest is
the unit sphere. `scene.scene_to_world` [4, 4] maps the latter to the former.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from data.errors import UserError
from data.io.streams import telling as telling
from models.commands.functions import Reconstruction as Reconstruction
from models.commands.functions import color_mesh as color_mesh
from models.commands.functions import evaluate as evaluate
from models.commands.functions import extract_mesh as extract_mesh
from models.commands.functions import inspect as inspect
from models.commands.functions import load_scene as load_scene
from models.commands.functions import open_model as open_model
from models.commands.functions import prepare as prepare
from models.commands.functions import public
from models.commands.functions import read_conf as read_conf
from models.commands.functions import render as render
from models.commands.functions import render_video as render_video
from models.commands.functions import train as train
from models.config.program import FAST, find_conf
from models.requests import DEFAULT_FRAMES, PIECES, PUBLISHED_RESOLUTION, VERTEX, PreparationRequest
from models.requests import EvaluationRequest as EvaluationRequest
from models.requests import MeshRequest as MeshRequest
from models.requests import VideoRequest as VideoRequest
from models.results.callback import Callback as Callback
from models.results.request_checks import require_preparation
from models.results.trained import using_device

DELIVERED = MeshRequest(PUBLISHED_RESOLUTION, is_refined=True, clean=PIECES, color=VERTEX)
REFERENCES = EvaluationRequest(DELIVERED)  # those of the scene


@public
@using_device()
def reconstruct(
    images: str | Path,
    *,
    minutes: float | str | None = None,
    conf: str | Path = FAST,
    case: str = "",
    overrides: Sequence[str] = (),
    masks: str = "",
    frames: int = DEFAULT_FRAMES,
    boxes: Sequence[Sequence[str]] = (),
    marker: float | None = None,
    scale: Sequence[str] = (),
    is_panorama: bool = False,
    cameras: str = "",
    lens: str = "",
    mesh: MeshRequest = DELIVERED,
    evaluation: EvaluationRequest = REFERENCES,
    overwrite: bool = False,
    device: str = "auto",
    gpu: int = 0,
    language: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Reconstruction:
    """From photographs to a coloured mesh, images and metrics. An interrupted reconstruction is continued.

    Args:
        images: a folder of photographs, or a video. `masks` to `lens`: as for `prepare`.
        minutes: of the whole call. "auto": until doubling the steps hardly improves the PSNR, at most 10. None: those
            of an existing reconstruction, else "auto".
        conf: file, `case` and `overrides` as for `read_conf`; without `case`, the name of the photographs.
        mesh: options of the mesh, without `output`.
        evaluation: references of the metrics; evaluated is the resulting mesh.
        overwrite: start again, with the cameras, too.
        device: and `gpu`, `language`, `callbacks` as for `train`.
    Raises:
        UserError: as the steps, and if the folder contains another reconstruction.
        Interrupted, GpuFailedError: as `train`; the next call continues.
    """
    from models.commands.reconstruction import Work, run

    preparation = PreparationRequest(
        Path(images), masks, frames, boxes, marker, scale, is_panorama, cameras, lens, overwrite
    )
    require_preparation(preparation)
    photographs = {name: value for name, value in vars(preparation).items() if name != "overwrite"}
    if not case:
        source = Path(images).resolve()
        case = re.sub(r"[^\w-]+", "_", source.stem if source.is_file() else source.name).strip("_-")
    if not case:
        raise UserError(
            f"--images {images}: its name contains no letter or digit, so it is no valid scene name; pass --case NAME"
        )
    selected = (find_conf(Path(conf)), case, tuple(overrides), device, gpu)
    return run(Work(*selected, photographs, minutes, mesh, evaluation, overwrite, language, callbacks))

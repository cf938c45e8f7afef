"""Which trainings, meshes, videos and metrics can be asked for: checked before anything is computed or loaded."""

from __future__ import annotations

import os

from data.errors import UserError
from data.io.files import require_place, similar_names
from data.limits import require_values
from models.mesh.output import require_valid
from models.requests import (
    ORBIT,
    EvaluationRequest,
    MeshRequest,
    PreparationRequest,
    TrainingRequest,
    VideoRequest,
    view_indices,
)


def require_training(request: TrainingRequest) -> None:
    """Raises UserError for wrong values, options that exclude each other, and a missing checkpoint."""
    require_values(request)
    if request.overwrite and request.is_continue:
        raise UserError("--overwrite, --is_continue: one starts again, the other continues; give only one of them")
    if request.checkpoint is not None and not os.path.isfile(request.checkpoint):
        alternatives = similar_names(request.checkpoint, ".safetensors", ".pth", ".ply")
        raise UserError(f"--checkpoint {request.checkpoint}: no such file{alternatives}")


def require_preparation(request: PreparationRequest) -> None:
    """Raises UserError for wrong values, and boxes without their method."""
    require_values(request)
    if request.boxes and request.masks != "box":
        raise UserError("--box: needs --masks box")
    if request.cameras and request.lens:
        raise UserError("--cameras, --lens: the cameras include their lenses; give only one of them")


def require_extraction(request: MeshRequest) -> None:
    """Raises UserError if the mesh cannot be made, or needs more memory than is free."""
    from models.results.capacity import require_mesh  # imports NumPy, which flags do without

    require_valid(request)
    if request.mesh_file is not None:
        raise UserError(f"MeshRequest: mesh_file = {request.mesh_file} is coloured by color_mesh; leave it out")
    require_mesh(request.resolution, f"--resolution {request.resolution}")


def require_video(request: VideoRequest) -> None:
    """Raises UserError for wrong values, a path that does not exist, and an output that cannot be written."""
    require_values(request)
    output = request.output
    if output is not None and output.suffix.lower() == ".mp4":
        require_place(output, "--output")
    elif output is not None and (output.suffix or (output.exists() and not output.is_dir())):
        raise UserError(f"--output {output}: name a .mp4 file, or a folder for PNGs")
    if request.path != ORBIT and not view_indices(request.path) and not os.path.isfile(request.path):
        raise UserError(
            f"--path {request.path}: is neither {ORBIT}, nor photographs such as 0,5,9, nor an existing file"
        )


def require_evaluation(request: EvaluationRequest, language: str | None = None) -> None:
    """Raises UserError for wrong values, and a scan without its data set; `language`: of the report."""
    require_values(request)
    require_values(TrainingRequest(language=language))
    if request.scan is not None and request.dtu is None:
        raise UserError("--scan: needs --protocol dtu --dtu FOLDER")

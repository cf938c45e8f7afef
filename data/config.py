"""The `dataset` block of a conf."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DatasetConfig:
    """Where a scene lies and how it is read; the keys are those of the published NeuS, plus ours with defaults."""

    data_dir: str  # scene folder: image/, optional mask/, the camera files
    render_cameras_name: str  # npz with world_mat_i and scale_mat_i: the cameras and the working frame
    object_cameras_name: str  # npz whose scale_mat_0 bounds the region the mesh is extracted from
    camera_outside_sphere: bool = True  # accepted for the published confs, which never read it
    scale_mat_scale: float = 1.1  # likewise
    test_dir: str = ""  # a scene folder of held-out views in the same world frame; "" for none
    reference_mesh: str = ""  # ground-truth mesh in the working frame for the report; "" for none

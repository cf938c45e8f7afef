"""The `dataset` block of a conf."""

from __future__ import annotations

from dataclasses import dataclass, field

FORMATS = ("neus", "blender", "ngp", "nerfstudio", "colmap", "llff")
AUTO_FORMAT = "auto"
NO_REFINEMENT, POSES, POSES_AND_FOCAL = "none", "poses", "focal"
MAX_DOWNSCALE = 64  # of a picture's sides; beyond it no photograph has pixels left


@dataclass(frozen=True)
class DatasetConfig:
    """Where a scene lies and how it is read; the keys are those of the published NeuS, plus ours with defaults.

    Metadata of a field: the range it is held to, as `models.config.strict.limits` writes it.
    """

    data_dir: str  # scene folder: image/, optional mask/, the camera files
    render_cameras_name: str  # npz with world_mat_i and scale_mat_i: the cameras and the working frame
    object_cameras_name: str  # npz whose scale_mat_0 bounds the region the mesh is extracted from
    camera_outside_sphere: bool = True  # no camera may stand within the region; False where rays start at the camera
    scale_mat_scale: float = 1.1  # accepted for the published confs, which never read it
    test_dir: str = ""  # a scene folder of held-out views in the same world frame; "" for none
    reference_mesh: str = ""  # ground-truth mesh in the working frame for the report; "" for none
    # one of FORMATS, or recognised by the files in data_dir
    type: str = field(default=AUTO_FORMAT, metadata={"one_of": (AUTO_FORMAT, *FORMATS)})
    # photographs are reduced to one part in so many of their width and height
    downscale: int = field(default=1, metadata={"at_least": 1, "at_most": MAX_DOWNSCALE})
    test_every: int = field(default=0, metadata={"at_least": 0})  # every so many-th photograph is held out; 0: none
    test_views: tuple[int, ...] = ()  # numbers of the photographs that are held out
    train_views: tuple[int, ...] = ()  # numbers of the photographs that are trained on; (): all that are not held out
    # what of the cameras is first adjusted to what the photographs have in common
    refine_cameras: str = field(default=NO_REFINEMENT, metadata={"one_of": (NO_REFINEMENT, POSES, POSES_AND_FOCAL)})
    roi: str = ""  # region of interest "x y z r", world frame; "": the format's own, or found in the scene

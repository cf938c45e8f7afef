"""The `dataset` block of a conf."""

from __future__ import annotations

from dataclasses import dataclass, field

from data.scenes.readers import FORMATS

AUTO_FORMAT = "auto"
NO_REFINEMENT, POSES, POSES_AND_FOCAL = "none", "poses", "focal"
MOST_VIEWS = 10**6  # photographs of a scene
MAX_DOWNSCALE = 64  # of the image's sides; beyond it no pixels are left


@dataclass(frozen=True)
class DatasetConfig:
    """Where a scene is and how it is read: the keys of the published NeuS, and further keys with defaults.

    The metadata of a field is its range, in the form of `models.config.strict.limits`.
    """

    data_dir: str  # scene folder: image/, optional mask/, the camera files
    render_cameras_name: str  # npz with world_mat_i and scale_mat_i: the cameras and the working frame
    object_cameras_name: str  # npz whose scale_mat_0 bounds the region the mesh is extracted from
    camera_outside_sphere: bool = True  # cameras must be outside the region; False for models whose rays start at them
    # accepted for the published confs, which never read it
    scale_mat_scale: float = field(default=1.1, metadata={"at_least": 0, "at_most": 100})
    test_dir: str = ""  # a scene folder of test images in the same world frame; "" for none
    reference_mesh: str = ""  # ground-truth mesh in the working frame for the report; "" for none
    # one of FORMATS, or recognised by the files in data_dir
    type: str = field(default=AUTO_FORMAT, metadata={"one_of": (AUTO_FORMAT, *FORMATS)})
    # width and height of the images are divided by this
    downscale: int = field(default=1, metadata={"at_least": 1, "at_most": MAX_DOWNSCALE})
    # images 0, n, 2 n, ... are test images; 0: none
    test_every: int = field(default=0, metadata={"at_least": 0, "at_most": MOST_VIEWS})
    test_views: tuple[int, ...] = ()  # indices of the test images
    validation_views: tuple[int, ...] = ()  # indices of the validation images
    train_views: tuple[int, ...] = ()  # indices of the images that are trained on; (): all others
    # which camera parameters a bundle adjustment refines before training
    refine_cameras: str = field(default=NO_REFINEMENT, metadata={"one_of": (NO_REFINEMENT, POSES, POSES_AND_FOCAL)})
    # whether masks of photographs without masks are derived from a backdrop of one colour, where they have one
    masks_from_backdrop: bool = False
    # whether SfM points of photographs without masks and points are triangulated from their matches
    triangulate_points: bool = False
    bbox: str = ""  # box of mesh extraction "x0 y0 z0 x1 y1 z1", world frame; "": that of the region of interest
    roi: str = ""  # region of interest "x y z r", world frame; "": that of the format, else estimated from the scene

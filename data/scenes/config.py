"""The `dataset` block of a conf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data.errors import SceneError
from data.parsed_scene import ParsedScene, PosedImage
from data.scenes.readers import FORMATS

AUTO_FORMAT = "auto"
NO_REFINEMENT, POSES, POSES_AND_FOCAL = "none", "poses", "focal"
MOST_PHOTOGRAPHS = 10**6  # photographs of a scene
MAX_DOWNSCALE = 64  # of the image's sides; beyond it no pixels are left
TRAINING, VALIDATION, TEST = "training", "validation", "test"  # the groups in messages, metrics and reports


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
    test_every: int = field(default=0, metadata={"at_least": 0, "at_most": MOST_PHOTOGRAPHS})
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


@dataclass(frozen=True)
class Split:
    """The groups; each photograph is in one at most."""

    training: tuple[PosedImage, ...]
    validation: tuple[PosedImage, ...]  # decide on the training; without any, training photographs do
    test: tuple[PosedImage, ...]  # not read before `evaluate`


def split(parsed: ParsedScene, conf: DatasetConfig) -> Split:
    """The groups, by the order of the images. Indices count those that the format does not hold out, from 0.

    The validation images are those of `dataset.validation_views`. The test images are those of `dataset.test_views`,
    else 0, n, 2 n, ... for `dataset.test_every` = n without validation images, else those that the format holds out,
    which otherwise are not used. The others, or those of `dataset.train_views`, are trained on.
    Other files of the shot of a held-out image, IMG_1.png beside IMG_1.jpg, are not trained on. Raises SceneError for
    an index that is out of range or in two lists, and if no training image is left.
    """
    own = [image for image in parsed.images if not image.is_held_out]
    train, validation, test = (
        _checked(getattr(conf, key), f"dataset.{key}", len(own), parsed)
        for key in ("train_views", "validation_views", "test_views")
    )
    if conf.test_every and not test:
        test = [view for view in range(0, len(own), conf.test_every) if view not in validation]
    twice = sorted(view for view, count in Counter([*train, *validation, *test]).items() if count > 1)
    if twice:
        raise SceneError(
            f"{parsed.source}: photograph {twice[0]} is in two of dataset.train_views, dataset.validation_views and "
            "dataset.test_views (or test_every); leave it in one"
        )
    held_out = {*validation, *test}
    of_held_out = {_shot(image) for image in parsed.images if image.is_held_out} | {_shot(own[i]) for i in held_out}
    training = tuple(own[view] for view in train or range(len(own)) if _shot(own[view]) not in of_held_out)
    if not training:
        raise SceneError(
            f"{parsed.source}: no photograph is left to train on (of {len(own)}); hold out fewer "
            "(dataset.test_every, dataset.test_views, dataset.validation_views)"
        )
    measured = [own[view] for view in test] or [image for image in parsed.images if image.is_held_out]
    return Split(training, tuple(own[view] for view in validation), tuple(measured))


def _shot(image: PosedImage) -> Path:
    """The path of an image without its suffix."""
    return image.path.with_suffix("")


def _checked(views: Sequence[int], key: str, count: int, parsed: ParsedScene) -> Sequence[int]:
    """`views`; raises SceneError for an index that is out of range or listed twice."""
    for position, view in enumerate(views):
        if not 0 <= view < count:
            raise SceneError(f"{key}: there is no photograph {view}; {parsed.source} has 0 to {count - 1}")
        if view in views[:position]:
            raise SceneError(f"{key}: names photograph {view} twice; name it once")
    return views

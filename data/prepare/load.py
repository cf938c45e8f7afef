"""Loads the training, validation and test photographs of the `dataset` block of a conf as scenes."""

from __future__ import annotations

import errno
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from data.errors import SceneError
from data.parsed_scene import ParsedScene
from data.prepare.adjust import adjusted, located, triangulated
from data.rays import PinholeCamera
from data.scenes.config import AUTO_FORMAT, NO_REFINEMENT, POSES_AND_FOCAL, TEST, DatasetConfig, split
from data.scenes.preprocess import grey_photographs, preprocess, views_of
from data.scenes.readers import READERS, recognise
from data.scenes.region import parse_roi
from data.scenes.scene import Scene, Views
from data.scenes.scene_checks import check_scene

Crop = Callable[[PinholeCamera, np.ndarray], tuple[PinholeCamera, np.ndarray]]  # of a camera and its image
GreyLoader = Callable[[Sequence[str]], list[tuple[PinholeCamera, np.ndarray]]]
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def load_scene(conf: DatasetConfig, background: float = 0.0) -> Scene:
    """The training images of the `dataset` block, checked, in the working frame.

    background: grey in [0, 1] behind images whose alpha channel is their mask.
    Raises UserError (`SceneError`, `ImageError`) for a scene that cannot be trained on.
    """
    with _failures_named(conf):
        parsed = _refined(_training(parse_scene(conf), conf), conf)
        find_points = triangulated if conf.triangulate_points else None
        scene = preprocess(parsed, parsed.images, conf, background, find_points=find_points)
        return check_scene(scene, conf.camera_outside_sphere)


def load_views(conf: DatasetConfig, trained: np.ndarray) -> Views | None:
    """The training cameras without their photographs, in the frame that the scene gives, else in `trained` [4, 4].

    None if they depend on pixels: refined cameras, triangulated points. Raises UserError as `load_scene`.
    """
    with _failures_named(conf):
        parsed = _training(parse_scene(conf), conf)
        is_masked = any(image.mask_path for image in parsed.images)
        triangulates = conf.triangulate_points and parsed.points is None and not is_masked
        if conf.refine_cameras != NO_REFINEMENT or triangulates:
            return None
        own = parse_roi(conf.roi).scale_mat if conf.roi else parsed.scale_mat
        return views_of(parsed, conf, trained if own is None else own)


def grey_loader(conf: DatasetConfig, scene: Scene, downscale: int, background: float, crop: Crop) -> GreyLoader:
    """Photographs of a scene in grey by their names, divided by `downscale` (see `grey_photographs`), and cropped."""
    with _failures_named(conf):
        parsed = parse_scene(conf)

    def load(names: Sequence[str]) -> list[tuple[PinholeCamera, np.ndarray]]:
        with _failures_named(conf):
            return [crop(*one) for one in grey_photographs(parsed, scene, downscale, background, names)]

    return load


def load_held_out(conf: DatasetConfig, training: Scene, group: str = TEST, background: float = 0.0) -> Scene | None:
    """The images of the group VALIDATION or TEST, in the frame of the `training` scene; None if there are none.

    The test images are those of the folder `dataset.test_dir` if it is given, else those of `split`. Refined poses are
    found against the cameras of the training photographs, which are kept.
    Raises UserError as `load_scene`, and if the unit sphere of the folder differs from that of `training`.
    """
    with _failures_named(conf):
        parsed = whole = parse_scene(conf)
        images = getattr(split(whole, conf), group)
        if group == TEST and conf.test_dir:
            parsed = parse_scene(replace(conf, data_dir=conf.test_dir))
            images = parsed.images
            own = training.scene_to_world if conf.roi or parsed.scale_mat is None else parsed.scale_mat
            if not np.allclose(own, training.scene_to_world, rtol=1e-5, atol=1e-6):
                raise SceneError(
                    f"dataset.test_dir = {conf.test_dir}: its region of interest (scale_mat_0) differs from that of "
                    "the training scene; use the same one for both, or set dataset.roi"
                )
        if not images:
            return None
        if conf.refine_cameras != NO_REFINEMENT:
            given = _training(whole, conf)
            images = located(images, given, _refined(given, conf))
        scene = preprocess(parsed, images, conf, background, training)
        return check_scene(scene, conf.camera_outside_sphere)


def parse_scene(conf: DatasetConfig) -> ParsedScene:
    """Read the cameras of the scene folder `conf.data_dir`; no image is decoded. Raises SceneError."""
    folder = Path(conf.data_dir)
    return READERS[recognise(folder) if conf.type == AUTO_FORMAT else conf.type].read(folder, conf)


def _training(parsed: ParsedScene, conf: DatasetConfig) -> ParsedScene:
    """The scene with its training images alone."""
    return replace(parsed, images=split(parsed, conf).training)


def _refined(parsed: ParsedScene, conf: DatasetConfig) -> ParsedScene:
    """The scene, with refined cameras if `conf` asks for them."""
    if conf.refine_cameras == NO_REFINEMENT:
        return parsed
    return adjusted(parsed, conf.refine_cameras == POSES_AND_FOCAL)


@contextmanager
def _failures_named(conf: DatasetConfig) -> Iterator[None]:
    """Converts OSError to SceneError and silences warnings: overflow is detected by checks of the results."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise SceneError(
                f"{tempfile.gettempdir()}: has no space left, which reading {conf.data_dir} needs; free some space "
                "there, or set TMPDIR to another folder"
            ) from error
        where, why = error.filename or conf.data_dir, error.strerror or error
        raise SceneError(f"{where}: cannot be read ({why}); check the name and its permissions") from error

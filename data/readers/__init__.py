"""From a folder on disk to a `Scene`: one module per on-disk format, and the door to them."""

from __future__ import annotations

import errno
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from data.capture import Capture
from data.config import AUTO_FORMAT, DatasetConfig
from data.develop import develop
from data.readers.blender import read_blender
from data.readers.colmap import read_colmap
from data.readers.detect import recognise
from data.readers.llff import read_llff
from data.readers.nerfstudio import read_nerfstudio
from data.readers.neus import read_neus
from data.readers.ngp import read_ngp
from data.scene import Scene, SceneError, check_scene
from data.split import split

READERS: dict[str, Callable[[Path, DatasetConfig], Capture]] = {
    "neus": read_neus,
    "blender": read_blender,
    "ngp": read_ngp,
    "nerfstudio": read_nerfstudio,
    "colmap": read_colmap,
    "llff": read_llff,
}


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def load_scene(conf: DatasetConfig, background: float = 0.0) -> Scene:
    """The photographs to train on that the `dataset` block describes, checked, in the working frame.

    background: grey in [0, 1] behind photographs whose alpha channel serves as their mask.
    Raises UserError (`SceneError`, `ImageError`) with one sentence for every scene that cannot be trained on.
    """
    with _failures_named(conf):
        capture = read_capture(conf)
        photographs, _ = split(capture, conf)
        return check_scene(develop(capture, photographs, conf, background))


def load_held_out(conf: DatasetConfig, training: Scene, background: float = 0.0) -> Scene | None:
    """The photographs held out for judging, in the frame of the `training` scene; None where there are none.

    They are those of the folder `dataset.test_dir`, where it is given, and else what `split` holds out.
    Raises UserError as `load_scene`, and where the folder's own unit sphere is another one.
    """
    with _failures_named(conf):
        if conf.test_dir:
            capture = read_capture(replace(conf, data_dir=conf.test_dir))
            photographs = capture.photographs
            own = training.scene_to_world if conf.roi or capture.scale_mat is None else capture.scale_mat
            if not np.allclose(own, training.scene_to_world, rtol=1e-5, atol=1e-6):
                raise SceneError(
                    f"dataset.test_dir = {conf.test_dir}: its scale_mat_0 is another region of interest than the "
                    "training scene's; give both the same, or the training scene's as dataset.roi"
                )
        else:
            capture = read_capture(conf)
            _, photographs = split(capture, conf)
        if not photographs:
            return None
        return check_scene(develop(capture, photographs, conf, background, training.scene_to_world))


def read_capture(conf: DatasetConfig) -> Capture:
    """What the scene folder `conf.data_dir` holds, no photograph decoded; raises SceneError where it cannot be used."""
    folder = Path(conf.data_dir)
    return READERS[recognise(folder) if conf.type == AUTO_FORMAT else conf.type](folder, conf)


@contextmanager
def _failures_named(conf: DatasetConfig) -> Iterator[None]:
    """Numbers that overflow are found by their results, and named; a file that cannot be read becomes a SceneError."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library would warn of is found by its result, too
            yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise SceneError(
                f"{tempfile.gettempdir()}: has no space left, which reading {conf.data_dir} needs; make room there, or "
                "set TMPDIR to another folder"
            ) from error
        where, why = error.filename or conf.data_dir, error.strerror or error
        raise SceneError(f"{where}: cannot be read ({why}); check the name and its permissions") from error

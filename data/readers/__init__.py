"""From a folder on disk to a `Scene`: one module per on-disk format, and the door to them."""

from __future__ import annotations

import numpy as np

from data.config import DatasetConfig
from data.readers.neus import read_neus
from data.scene import Scene, SceneError, check_scene


def load_scene(conf: DatasetConfig) -> Scene:
    """The scene that the `dataset` block describes, checked, in the working frame.

    Raises UserError (`SceneError`, `ImageError`) with one sentence for every scene that cannot be trained on.
    """
    try:
        with np.errstate(all="ignore"):  # numbers that overflow are found by their results, and named
            return check_scene(read_neus(conf))
    except OSError as error:
        raise SceneError(f"{conf.data_dir}: cannot be read ({error}); check its permissions") from error

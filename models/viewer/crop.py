"""A crop box in the viewer, and the button that saves it and the region of interest as keys of a conf, in the folder of
the region.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from data.errors import UserError
from data.io.files import write_result
from data.scenes.frustum import bounds, parse_bbox
from data.scenes.region import in_digits
from data.scenes.scene import Scene, radius_of
from models.config.hocon import quoted
from models.viewer.scene_display import DIGITS, SceneDisplay, region_numbers

CONF_FILE = "region.conf"  # in the scene folder
RED = (200, 60, 60)
HANDLE = 0.3  # radii
LINE_WIDTH = 2.0  # pixels
# the twelve edges of a box, by the indices of its corners in the order of itertools.product
EDGES = tuple((a, b) for a, b in itertools.combinations(range(8), 2) if (a ^ b).bit_count() == 1)


@dataclass(frozen=True)
class ConfKeys:
    """The conf of the viewer and the values of the keys that it saves."""

    path: Path  # the conf file
    folder: Path  # the scene folder, where the new conf is written
    roi: str = ""  # dataset.roi
    bbox: str = ""  # dataset.bbox


class CropBox:
    """Two corners that can be dragged, the box between them, and the button that saves it."""

    def __init__(self, stage: SceneDisplay, keys: ConfKeys, say: Callable[[str], None]) -> None:
        """Add the box and its controls to the page; the box is shown on request."""
        self._stage, self._keys, self._say = stage, keys, say
        server, words, scene = stage.server, stage.words, stage.scene
        self._radius, self._centre = radius_of(scene), scene.scene_to_world[:3, 3]
        x, y, z, w = Rotation.from_matrix(scene.scene_to_world[:3, :3].T / self._radius).as_quat()
        # The frame has the axes of the world, so that the box is aligned with them, and unit and origin of the working
        # frame: browsers have single precision, too little for a world far from its origin.
        self._frame = server.scene.add_frame("/crop", show_axes=False, wxyz=(w, x, y, z), visible=bool(keys.bbox))
        low, high = ((parse_bbox(keys.bbox) if keys.bbox else world_box(scene)) - self._centre) / self._radius
        self.corners = [
            server.scene.add_transform_controls(
                f"/crop/{name}", scale=HANDLE, disable_rotations=True, position=tuple(corner)
            )
            for name, corner in (("low", low), ("high", high))
        ]
        self._lines = server.scene.add_line_segments(
            "/crop/edges", self._edges(), RED, thickness=LINE_WIDTH, thickness_units="screen"
        )
        with stage.region_folder:
            self.shown = server.gui.add_checkbox(words("crop"), bool(keys.bbox))
            save = server.gui.add_button(words("save_conf"))
            self._told = server.gui.add_markdown("")
        self.shown.on_update(self._show)
        save.on_click(lambda _event: self.save())
        for corner in self.corners:
            corner.on_update(self._moved)

    @property
    def box(self) -> np.ndarray:
        """The low and the high corner, float64 [2, 3], world frame."""
        ends = np.array([corner.position for corner in self.corners], float)
        return np.sort(ends, axis=0) * self._radius + self._centre

    def save(self) -> None:
        """Write the conf with the region of interest, if it was moved, and with the box, if it is shown."""
        path = self._keys.folder / CONF_FILE
        try:
            written = {
                "dataset.data_dir": str(self._keys.folder.resolve()),
                "dataset.roi": self._roi(),
                "dataset.bbox": self._bbox(),
            }
            write_result(path, conf_text(self._keys.path, path, written).encode())
        except UserError as error:
            self._told.content = str(error)
            return
        self._told.content = f"{self._stage.words('conf_saved')} `--conf {path}`"
        self._say(f"saved: pass --conf {path} in place of --conf {self._keys.path}")

    def _roi(self) -> str:
        """The value of dataset.roi; that of the conf if the sphere is where it was."""
        centre, radius = np.asarray(self._stage.region.position, float), float(self._stage.radius.value)
        if not centre.any() and radius == 1.0:
            return self._keys.roi
        return region_numbers(self._stage.scene, centre, radius)

    def _bbox(self) -> str:
        """The value of dataset.bbox; "" for none. Raises UserError for a box without a volume."""
        if not self.shown.value:
            return ""
        text = " ".join(in_digits(self.box.reshape(-1), self._radius, DIGITS))
        parse_bbox(text)
        return text

    def _show(self, _event: Any) -> None:
        self._frame.visible = self.shown.value

    def _moved(self, _event: Any) -> None:
        self._lines.points = self._edges()

    def _edges(self) -> np.ndarray:
        """The edges of the box, float32 [12, 2, 3], in the frame /crop."""
        box = (self.box - self._centre) / self._radius
        corners = np.array(list(itertools.product(*box.T)), np.float32)
        return corners[np.array(EDGES)]


def world_box(scene: Scene) -> np.ndarray:
    """The smallest box [2, 3] in the world frame around the box of mesh extraction."""
    return bounds(np.stack([scene.bbox_min, scene.bbox_max]), scene.scene_to_world)


def conf_text(base: Path, path: Path, keys: dict[str, str]) -> str:
    """A conf, to be written to `path`, that includes `base` and sets `keys`; of a `base` at `path`, its lines but those
    of `keys` are kept. Raises UserError if that file cannot be read.
    """
    head = [f'include "{base.resolve()}"']
    if base.resolve() == path.resolve():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); remove the file") from error
        head = [line for line in lines if line.partition("=")[0].strip() not in keys]
    return "\n".join([*head, *(f"{key} = {quoted(value)}" for key, value in keys.items())]) + "\n"

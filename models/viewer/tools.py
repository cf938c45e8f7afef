"""Tools of the viewer's page: crop box, ruler, rectangles on photographs, and the panel that writes the mesh to a file.

The box is saved with the region of interest as keys of a conf, in the folder of the region; the ruler gives the scene
its real size; rectangles are for --mode prepare --masks box.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

from data.errors import UserError, reason
from data.io.files import is_file, read_regular, write_result
from data.limits import span
from data.pixels import eight_bits
from data.prepare.box_masks import carried, object_points
from data.scenes.frustum import bounds, parse_bbox
from data.scenes.region import in_digits
from data.scenes.scene import Scene, radius_of
from models.config.hocon import quoted
from models.mesh.extraction import EmptySurfaceError
from models.mesh.output import HOLDS, companions, require_format
from models.requests import PIECES, PUBLISHED_RESOLUTION, TEXTURE, TEXTURE_SIZE, VIEWS, MeshRequest
from models.results.experiment import Experiment
from models.results.request_checks import require_extraction
from models.viewer.scene_display import LENGTH_DIGITS, SceneDisplay, look_through, region_numbers, wxyz_of

CONF_FILE = "region.conf"  # in the scene folder
RED = (200, 60, 60)
# the twelve edges of a box, by the indices of its corners in the order of itertools.product
BOX_EDGES = tuple((a, b) for a, b in itertools.combinations(range(8), 2) if (a ^ b).bit_count() == 1)


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
        # Without a box: the smallest one around that of mesh extraction.
        around = np.stack([scene.bbox_min, scene.bbox_max])
        box = parse_bbox(keys.bbox) if keys.bbox else bounds(around, scene.scene_to_world)
        low, high = (box - self._centre) / self._radius
        self.corners = [
            server.scene.add_transform_controls(
                f"/crop/{name}", scale=0.3, disable_rotations=True, position=tuple(corner)
            )
            for name, corner in (("low", low), ("high", high))
        ]
        self._lines = server.scene.add_line_segments(
            "/crop/edges", self._edges(), RED, thickness=2.0, thickness_units="screen"
        )
        with stage.region_folder:
            self.shown = server.gui.add_checkbox(words("crop"), bool(keys.bbox))
            save = server.gui.add_button(words("save_conf"))
            self.message = server.gui.add_markdown("")
        save.on_click(lambda _event: self.save())

        @self.shown.on_update
        def _(_event: Any) -> None:
            self._frame.visible = self.shown.value

        for corner in self.corners:

            @corner.on_update
            def _(_event: Any) -> None:
                self._lines.points = self._edges()

    @property
    def box(self) -> np.ndarray:
        """The low and the high corner, float64 [2, 3], world frame."""
        ends = np.array([corner.position for corner in self.corners], float)
        return np.sort(ends, axis=0) * self._radius + self._centre

    def save(self) -> None:
        """Write the conf with the region of interest, if it was moved, and with the box, if it is shown."""
        path = self._keys.folder / CONF_FILE
        centre, radius = np.asarray(self._stage.region.position, float), float(self._stage.radius.value)
        is_moved = bool(centre.any()) or radius != 1.0
        roi = region_numbers(self._stage.scene, centre, radius) if is_moved else self._keys.roi
        bbox = " ".join(in_digits(self.box.reshape(-1), self._radius, LENGTH_DIGITS)) if self.shown.value else ""
        written = {"dataset.data_dir": str(self._keys.folder.resolve()), "dataset.roi": roi, "dataset.bbox": bbox}
        try:
            if bbox:
                parse_bbox(bbox)  # raises for a box without a volume
            write_result(path, conf_text(self._keys.path, path, written).encode())
        except UserError as error:
            self.message.content = str(error)
            return
        self.message.content = f"{self._stage.words('conf_saved')} `--conf {path}`"
        self._say(f"saved: pass --conf {path} in place of --conf {self._keys.path}")

    def _edges(self) -> np.ndarray:
        """The edges of the box, float32 [12, 2, 3], in the frame /crop."""
        box = (self.box - self._centre) / self._radius
        corners = np.array(list(itertools.product(*box.T)), np.float32)
        return corners[np.array(BOX_EDGES)]


def conf_text(base: Path, path: Path, keys: dict[str, str]) -> str:
    """A conf, to be written to `path`, that includes `base` and sets `keys`; of a `base` at `path`, its lines but those
    of `keys` are kept. Raises UserError if that file cannot be read.
    """
    head = [f'include "{base.resolve()}"']
    if base.resolve() == path.resolve():
        try:
            lines = read_regular(path).decode("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read ({error}); remove the file") from error
        head = [line for line in lines if line.partition("=")[0].strip() not in keys]
    return "\n".join([*head, *(f"{key} = {quoted(value)}" for key, value in keys.items())]) + "\n"


GREEN = (40, 150, 90)
HANDLE = 0.25  # radii
NEAR_RAY = 0.02  # radians: SfM points within this angle of a click may be meant
ENDS = ("A", "B")


class Ruler:
    """Two points that can be dragged, or selected by clicks on the mesh or on SfM points."""

    def __init__(self, stage: SceneDisplay, say: Callable[[str], None]) -> None:
        """Add the ruler and its controls to the page; the ruler is shown on request."""
        self._stage, self._say, self._next = stage, say, 0
        server, words = stage.server, stage.words
        self._frame = server.scene.add_frame("/ruler", show_axes=False, visible=False)
        self.ends = [
            server.scene.add_transform_controls(
                f"/ruler/{name}", scale=HANDLE, disable_rotations=True, position=(place, 0.0, 0.0)
            )
            for name, place in zip(ENDS, (-0.5, 0.5), strict=True)
        ]
        for name in ENDS:
            server.scene.add_label(f"/ruler/{name}/name", name)
        self._line = server.scene.add_line_segments(
            "/ruler/line", self._segment(), GREEN, thickness=3.0, thickness_units="screen"
        )
        with server.gui.add_folder(words("ruler"), expand_by_default=False):
            self.shown = server.gui.add_checkbox(words("show_ruler"), False)
            pick = server.gui.add_button(words("pick"))
            self.length = server.gui.add_number(words("real_length"), 1.0, min=1e-9, max=1e9, step=0.001)
            self.message = server.gui.add_markdown(self._text())
        self.length.on_update(lambda _event: self._update(True))

        @self.shown.on_update
        def _(_event: Any) -> None:
            self._frame.visible = self.shown.value

        pick.on_click(lambda event: self.pick(event.client))
        for end in self.ends:
            end.on_update(lambda event: self._update(getattr(event, "phase", "end") == "end"))

    @property
    def points(self) -> np.ndarray:
        """Both points, float64 [2, 3], world frame."""
        to_world = self._stage.scene.scene_to_world
        return np.array([end.position for end in self.ends], float) @ to_world[:3, :3].T + to_world[:3, 3]

    @property
    def distance(self) -> float:
        """The distance of the points in world units."""
        return float(np.linalg.norm(self.points[1] - self.points[0]))

    def flag(self) -> str:
        """The flag that scales the scene so that the distance becomes the real length."""
        points = in_digits(self.points.reshape(-1), radius_of(self._stage.scene), LENGTH_DIGITS)
        return f"--scale {' '.join(points)} {self.length.value:.{LENGTH_DIGITS}g}"

    def pick(self, client: Any) -> None:
        """Move A, then B, to the next two clicks on the mesh or on an SfM point."""
        self.shown.value, self._next = True, 0
        self.message.content = self._stage.words("pick_hint")
        client.scene.remove_click_callback()  # the button was pressed twice

        @client.scene.on_click()
        def _(event: Any) -> None:
            self.move_next(np.asarray(event.ray_origin, float), np.asarray(event.ray_direction, float))
            if self._next == len(self.ends):
                client.scene.remove_click_callback()

    def move_next(self, origin: np.ndarray, direction: np.ndarray) -> None:
        """Move the next point to where a ray first meets the mesh, or to the SfM point nearest to the ray."""
        point = None
        if self._stage.surface is not None:
            hits = self._stage.surface.ray.intersects_location([origin], [direction], multiple_hits=False)[0]
            point = hits[0] if len(hits) else None
        if point is None and self._stage.scene.points is not None:
            point = nearest_to_ray(self._stage.scene.points.xyz, origin, direction)
        if point is None:
            self.message.content = self._stage.words("pick_missed")
            return
        self.ends[self._next].position = tuple(point)
        self._next += 1
        self._update(self._next == len(self.ends))

    def _update(self, is_final: bool) -> None:
        self._line.points = self._segment()
        self.message.content = self._text()
        if is_final:
            self._say(self.flag())

    def _text(self) -> str:
        words = self._stage.words
        return f"{words('distance')} {self.distance:.5g} {words('units')}\n\n`{self.flag()}`"

    def _segment(self) -> np.ndarray:
        return np.array([[end.position for end in self.ends]], np.float32)


def nearest_to_ray(points: np.ndarray, origin: np.ndarray, direction: np.ndarray) -> np.ndarray | None:
    """The nearest of the points [N, 3] within NEAR_RAY of a ray; None if there is none."""
    unit = direction / np.linalg.norm(direction)
    along = (points - origin) @ unit
    off_ray = np.linalg.norm(points - origin - along[:, None] * unit, axis=1)
    is_near = (along > 0) & (off_ray < NEAR_RAY * along)
    return points[is_near][np.argmin(along[is_near])] if is_near.any() else None


BOXES_FILE = "boxes.json"  # in the scene folder
SCREEN = 720  # height of the displayed image in pixels
# distance of the image plane from the camera in radii; cameras and points are behind it
SHEET, AHEAD = "/photograph", 0.05
LINE, CARRIED_LINE = (255, 200, 0), (0, 220, 255)  # colours of drawn and of transferred rectangles
MOST_BOXES_BYTES = 1 << 24


class Boxes:
    """Shows a photograph and records the rectangle drawn on it."""

    def __init__(self, stage: SceneDisplay, folder: Path, downscale: int, say: Callable[[str], None]) -> None:
        """`folder` is the scene folder, where boxes.json is written; its images are `downscale` times as large as the
        scene's.
        """
        self._stage, self._path, self._downscale, self._say = stage, folder / BOXES_FILE, downscale, say
        self._boxes = _read(self._path, say)
        server, words = stage.server, stage.words
        with server.gui.add_folder(words("masks"), expand_by_default=False):
            last = stage.scene.n_views - 1
            self.view = server.gui.add_slider(words("photograph"), 0, max(1, last), 1, 0, disabled=last == 0)
            look, draw = server.gui.add_button(words("look")), server.gui.add_button(words("draw"))
            leave, self.message = server.gui.add_button(words("leave")), server.gui.add_markdown("")
        look.on_click(lambda event: self._look(event.client))
        draw.on_click(lambda event: self._draw(event.client))
        leave.on_click(lambda event: event.client.scene.remove_by_name(SHEET))

    def _look(self, client: Any) -> int:
        """Move the browser's camera to that of the photograph and show it in front; returns the photograph's number."""
        view = min(int(self.view.value), self._stage.scene.n_views - 1)
        look_through(client, self._stage.scene, view)
        self._show(client, view)
        return view

    def _show(self, client: Any, view: int) -> None:
        """Show the photograph with its rectangle as an image plane in front of a browser's camera at its pose."""
        fov, aspect = float(client.camera.fov), float(client.camera.aspect)
        pose, tall = self._stage.scene.c2w[view], 2.0 * AHEAD * float(np.tan(0.5 * fov))
        client.scene.add_image(
            SHEET,
            self.seen(view, fov, aspect),
            tall * aspect,
            tall,
            format="jpeg",
            wxyz=wxyz_of(pose),
            position=pose[:3, 3] + AHEAD * pose[:3, 2],
        )

    def seen(self, view: int, fov: float, aspect: float) -> np.ndarray:
        """The photograph and its rectangle, uint8, as seen from its pose with `aspect` (width / height) and `fov`."""
        scene = self._stage.scene
        width = max(1, round(SCREEN * aspect))
        columns, rows = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(SCREEN) + 0.5) / SCREEN)
        pixels = to_pixels(scene, view, np.stack([columns, rows], axis=-1), fov, aspect).astype(np.float32)
        picture = eight_bits(scene.images[view]).copy()
        own = self._boxes.get(scene.image_names[view])
        box = self._carried().get(view) if own is None else np.divide(own, self._downscale)
        if box is not None:
            left, top, right, bottom = (round(float(corner)) for corner in box)
            line = CARRIED_LINE if own is None else LINE
            cv2.rectangle(picture, (left, top), (right, bottom), line, max(2, picture.shape[1] // 200))
        return cv2.remap(picture, pixels[..., 0], pixels[..., 1], cv2.INTER_LINEAR, borderValue=(40, 40, 40))

    def _carried(self) -> dict[int, np.ndarray]:
        """Rectangles transferred by the SfM points, [4] in scene pixels by view; {} with a warning if that fails."""
        scene = self._stage.scene
        drawn = {view: self._boxes[name] for view, name in enumerate(scene.image_names) if name in self._boxes}
        if not drawn:
            return {}
        shares = {view: np.divide(box, self._downscale * np.tile(scene.size(view), 2)) for view, box in drawn.items()}
        try:
            boxes = carried(scene, object_points(scene, shares), shares)
        except UserError as error:
            self.message.content = str(error)
            return {}
        return {view: box for view, box in enumerate(boxes) if box is not None}

    def _draw(self, client: Any) -> None:
        """Record the next rectangle that is drawn."""
        view = self._look(client)
        self.message.content = self._stage.words("draw_hint")
        client.scene.remove_rect_select_callback()  # the button was pressed twice

        @client.scene.on_rect_select()
        def _(event: Any) -> None:
            client.scene.remove_rect_select_callback()
            self.save_box(
                view, (event.screen_min, event.screen_max), float(client.camera.fov), float(client.camera.aspect)
            )
            self._show(client, view)

    def save_box(self, view: int, corners: tuple, fov: float, aspect: float) -> None:
        """Save a rectangle given by its corners on the screen, as fractions of the window from the top left."""
        scene = self._stage.scene
        width, height = scene.size(view)
        # Coordinates in the file refer to the corner of the first pixel, not to its centre.
        ends = np.clip(to_pixels(scene, view, np.asarray(corners, float), fov, aspect) + 0.5, 0, (width, height))
        box = [round(float(corner), 1) for corner in (ends * self._downscale).reshape(-1)]
        if min(box[2] - box[0], box[3] - box[1]) < 2:
            return
        self._boxes[scene.image_names[view]] = box
        try:
            write_result(self._path, (json.dumps({"boxes": self._boxes}, indent=1) + "\n").encode())
        except UserError as error:
            self._say(f"box of {scene.image_names[view]}: {box}; {error}")
            return
        self.message.content = f"{len(self._boxes)} {self._stage.words('boxes_saved')} `{self._path}`"
        self._say(f"box of {scene.image_names[view]}: {box}, in {self._path}; --mode prepare --masks box reads it")


def to_pixels(scene: Scene, view: int, screen: np.ndarray, fov: float, aspect: float) -> np.ndarray:
    """Pixels [..., 2] of the photograph at fractions [..., 2] of a window that shows it from its pose."""
    tall = np.tan(0.5 * fov)
    rays = np.stack([(2 * screen[..., 0] - 1) * tall * aspect, (2 * screen[..., 1] - 1) * tall], axis=-1)
    pixels = np.concatenate([rays, np.ones_like(rays[..., :1])], axis=-1) @ scene.intrinsics[view].T
    return pixels[..., :2] / pixels[..., 2:]


def _read(path: Path, say: Callable[[str], None]) -> dict[str, list[float]]:
    """The rectangles in boxes.json; an unreadable file is logged and will be replaced."""
    try:
        if not is_file(path):
            return {}
        boxes = json.loads(read_regular(path, MOST_BOXES_BYTES).decode("utf-8"))["boxes"]
        return {str(name): [float(corner) for corner in box] for name, box in boxes.items() if len(box) == 4}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        say(f"{path}: cannot be read ({reason(error)}); the first box that is drawn replaces it")
        return {}


class ExportPanel:
    """The controls; the mesh is written by the thread of the model, which asks for the request."""

    def __init__(self, stage: SceneDisplay, crop: CropBox) -> None:
        """Add the controls to the page."""
        gui, words = stage.server.gui, stage.words
        self._crop, self._words, self.is_wanted = crop, words, False
        self._clean = VIEWS if stage.scene.masks is None else PIECES  # as reconstruct
        (least, finest), most = span(MeshRequest, "resolution"), span(MeshRequest, "decimate")[1]
        with gui.add_folder(words("export"), expand_by_default=False):
            self.format = gui.add_dropdown(words("format"), tuple(HOLDS), initial_value=".glb")
            self.resolution = gui.add_number(words("resolution"), PUBLISHED_RESOLUTION, min=least, max=finest, step=1)
            self.is_cropped = gui.add_checkbox(words("is_cropped"), False)
            self.triangles = gui.add_number(words("triangles"), 0, min=0, max=most, step=1000)
            self.is_textured = gui.add_checkbox(words("texture"), False)
            write = gui.add_button(words("write"))
            self.message = gui.add_markdown("")

        @write.on_click
        def _(_event: Any) -> None:
            self.is_wanted, self.message.content = True, self._words("computing")

    def serve(self, experiment: Experiment, step: int, write: Callable[[MeshRequest], object]) -> None:
        """Write a wanted mesh to meshes/ of the experiment, named by the step, and show its files or an error.

        `write` writes the mesh of a request, and raises UserError or EmptySurfaceError.
        """
        if not self.is_wanted:
            return
        self.is_wanted = False
        try:
            path = experiment.path("meshes", f"{step:08d}{self.format.value}")
            request = self.request(path)
            require_extraction(request)
            write(request)
        except (UserError, EmptySurfaceError) as error:
            self.message.content = str(error)
            return
        names = [path, *companions(path, request.color)]
        self.message.content = f"{self._words('written')} {', '.join(f'`{name}`' for name in names)}"

    def request(self, path: Path) -> MeshRequest:
        """The mesh of the controls; raises UserError if the format has no texture."""
        return MeshRequest(
            int(self.resolution.value),
            bbox=tuple(self._crop.box.reshape(-1)) if self.is_cropped.value else None,
            is_refined=True,
            clean=self._clean,
            decimate=int(self.triangles.value) or None,
            color=require_format(path, TEXTURE if self.is_textured.value else None),
            texture_size=TEXTURE_SIZE,
            output=path,
        )

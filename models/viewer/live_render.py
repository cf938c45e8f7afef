"""The model in the viewer: its mesh, and renderings from the browser's camera with an adaptive resolution.

Colours are as in the photographs: meshes without lighting, and the inverse of the page's tone mapping. viser's page
draws with react-three-fiber, whose default is three.js's ACESFilmicToneMapping at exposure 1, an sRGB output, and
lights. A glTF mesh with KHR_materials_unlit is drawn without lights; its vertex colours are linear.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np
import trimesh
from trimesh.exchange.gltf import export_glb

from data.cameras import camera_rays, image_pixels
from data.pixels import to_uint8
from models.mesh.clean import thinned
from models.mesh.mesh import UNLIT, Surface, linear
from models.results.camera_paths import lens
from models.results.context import EvalContext
from models.results.render import distance_picture, normal_picture
from models.viewer.scene_display import SceneDisplay, fov_of, pose_of

# Stephen Hill's fit of the ACES reference and output transforms, as in three.js (src/renderers/shaders/ShaderChunk/
# tonemapping_pars_fragment.glsl.js): sRGB to the transform's primaries, a rational function, and back.
INPUT = np.array([[0.59719, 0.35458, 0.04823], [0.07600, 0.90834, 0.01566], [0.02840, 0.13383, 0.83777]])
OUTPUT = np.array([[1.60475, -0.53108, -0.07367], [-0.10208, 1.10813, -0.00605], [-0.00327, -0.07276, 1.07602]])
NUMERATOR = (1.0, 0.0245786, -0.000090537)  # of v^2, v, 1
DENOMINATOR = (0.983729, 0.4329510, 0.238081)
TONE_EXPOSURE = 1.0 / 0.6

ATTRIBUTE = "_COLOR"  # trimesh writes its own vertex colours with 8 bits, and other attributes as float32


def before_tone_mapping(rgb: np.ndarray) -> np.ndarray:
    """Linear float32 [..., 3] that the page's tone mapping shows as the sRGB colours `rgb`, uint8 [..., 3]."""
    linear_rgb = np.clip(linear(rgb) @ np.linalg.inv(OUTPUT).T, 0.0, 1.0)
    # NUMERATOR(v) = shown * DENOMINATOR(v) is a quadratic equation with one positive root.
    a, b, c = (top - linear_rgb * bottom for top, bottom in zip(NUMERATOR, DENOMINATOR, strict=True))
    fitted = (-b + np.sqrt(b * b - 4.0 * a * c)) / (2.0 * a)
    return (fitted @ np.linalg.inv(INPUT).T / TONE_EXPOSURE).astype(np.float32)


def unlit_glb(mesh: trimesh.Trimesh, rgb: np.ndarray) -> bytes:
    """A binary glTF of `mesh` that the page shows with the vertex colours `rgb`, sRGB uint8 [V, 3]."""
    coloured = trimesh.Trimesh(
        mesh.vertices,
        mesh.faces,
        visual=trimesh.visual.TextureVisuals(material=trimesh.visual.material.PBRMaterial(doubleSided=True)),
        vertex_attributes={ATTRIBUTE: before_tone_mapping(rgb)},
        process=False,
    )
    return export_glb(coloured.scene(), tree_postprocessor=_unlit)


def _unlit(tree: dict[str, Any]) -> None:
    """Turn the attribute into vertex colours, and lighting off."""
    tree["extensionsUsed"] = [UNLIT]
    for material in tree["materials"]:
        material["extensions"] = {UNLIT: {}}
    for mesh in tree["meshes"]:
        for primitive in mesh["primitives"]:
            primitive["attributes"]["COLOR_0"] = primitive["attributes"].pop(ATTRIBUTE)


MESH, COLOUR, NORMALS, DEPTH = "mesh", "colour", "normals", "depth"
VIEW_KINDS = (MESH, COLOUR, NORMALS, DEPTH)
FEWEST_RAYS, MOST_RAYS = 20 * 15, 960 * 720
FINER = 4  # factor on the number of rays for each further rendering from the same camera
WARM_UP = 2  # images: the first one compiles
NODE = "/mesh"
SHOWN_FACES = 200_000  # of the displayed mesh


class LiveRenderer:
    """Renders for the connected browsers, one image at a time, in the calling thread."""

    def __init__(self, stage: SceneDisplay) -> None:
        """Add the controls to the page."""
        self._stage, self._words = stage, stage.words
        self._rays: dict[int, int] = {}  # rays of the newest image of each browser; 0 after its camera has moved
        self._changed = threading.Event()
        self._rate = 5000.0  # rays per second, before the first rendering is timed
        self._mesh: Any = None
        self._names = {self._words(kind): kind for kind in VIEW_KINDS}
        self._mode = stage.server.gui.add_dropdown(self._words("show"), tuple(self._names))
        self._caption, self._is_busy = "", True
        self._status = stage.server.gui.add_markdown(self._words("computing"))

        @self._mode.on_update
        def _(_event: Any) -> None:
            if self._mesh is not None:
                self._mesh.visible = self.mode == MESH
            if self._shows_mesh():
                self._clear()
            self.refresh()

        stage.server.on_client_connect(self._welcome)
        stage.server.on_client_disconnect(lambda client: self._rays.pop(client.client_id, None))

    @property
    def mode(self) -> str:
        """The selected display mode."""
        return self._names[self._mode.value]

    def tell(self, text: str) -> None:
        """Show `text` below the controls."""
        self._caption = text
        self._show_status()

    def busy(self, is_busy: bool) -> None:
        """Show that something is computed, or no longer."""
        if is_busy != self._is_busy:
            self._is_busy = is_busy
            self._show_status()

    def _show_status(self) -> None:
        parts = (self._caption, self._words("computing") if self._is_busy else "")
        self._status.content = " · ".join(filter(None, parts))

    def refresh(self) -> None:
        """The model has changed: discard the renderings."""
        self._rays = dict.fromkeys(self._rays, 0)
        self._changed.set()

    def forget_mesh(self) -> None:
        """Remove the displayed mesh; until there is another, images are rendered in its place."""
        if self._mesh is not None:
            self._mesh.remove()
            self._mesh = self._stage.surface = None
        self.refresh()

    def warm_up(self, context: EvalContext) -> None:
        """Render small images, so that all operations are compiled and timed before a browser connects."""
        pose = self._stage.scene.c2w[0]
        for _ in range(WARM_UP):
            self._picture(context, pose, fov_of(self._stage.scene, 0), 4 / 3, FEWEST_RAYS)

    def wait(self, seconds: float) -> None:
        """Wait for a request, at most for the given seconds."""
        self._changed.wait(seconds)
        self._changed.clear()

    def show_mesh(self, surface: Surface) -> None:
        """Replace the displayed mesh; raises UserError if it is too large."""
        thin, rgb = thinned(surface, SHOWN_FACES)
        self._stage.surface = thin
        api, is_visible = self._stage.server.scene, self.mode == MESH
        if rgb is not None:
            self._mesh = api.add_glb(NODE, unlit_glb(thin, rgb), visible=is_visible, cast_shadow=False)
        else:
            # Without a material it would be rendered as metal, which is dark without an environment map.
            matt = trimesh.visual.material.PBRMaterial(metallicFactor=0.0, roughnessFactor=1.0, doubleSided=True)
            visual = trimesh.visual.TextureVisuals(material=matt)
            mesh = trimesh.Trimesh(thin.vertices, thin.faces, visual=visual, process=False)
            self._mesh = api.add_mesh_trimesh(NODE, mesh, visible=is_visible)
        if is_visible:
            self._clear()

    def draw(self, context: EvalContext, at_once: float, longest: float) -> float:
        """Render the most urgent image; returns the seconds it took, 0 if nothing is due or there is no time.

        `at_once`: seconds for the first image of a new camera; finer ones follow, up to `longest`.
        """
        waiting = [(rays, client) for client, rays in list(self._rays.items()) if rays < MOST_RAYS]
        if self._shows_mesh() or not waiting:
            return 0.0
        before, number = min(waiting)
        client = self._stage.server.get_clients().get(number)
        if client is None:  # its tab was closed
            self._rays.pop(number, None)
            return 0.0
        wanted = FINER * before if before else max(FEWEST_RAYS, int(self._rate * at_once))
        rays = min(wanted, MOST_RAYS)
        if rays > self._rate * longest:
            return 0.0
        self._rays[number] = rays
        camera = client.camera
        picture, spent = self._picture(context, pose_of(camera), camera.fov, camera.aspect, rays)
        if not self._shows_mesh():
            client.scene.set_background_image(picture, format="jpeg")
        return spent

    def _shows_mesh(self) -> bool:
        return self.mode == MESH and self._mesh is not None

    def _picture(
        self, context: EvalContext, c2w: np.ndarray, fov: float, aspect: float, rays: int
    ) -> tuple[np.ndarray, float]:
        """The image of a camera [4, 4], uint8 [h, w, 3], and the seconds it took, from which the rate follows.

        fov: vertical, radians; aspect: width / height; rays: about the number of pixels.
        """
        begun = time.perf_counter()
        aspect = float(np.clip(aspect, 0.2, 5.0))
        height = max(2, round(math.sqrt(rays / aspect)))
        width = max(2, round(height * aspect))
        pixels = image_pixels(width, height)
        seen = context.render(camera_rays(pixels, lens(width, height, math.degrees(fov)), c2w), (height, width))
        if self.mode == NORMALS:
            picture = normal_picture(seen.normal, c2w)
        elif self.mode == DEPTH:
            picture = np.repeat(distance_picture(seen.distance, seen.opacity)[..., None], 3, axis=-1)
        else:
            picture = to_uint8(seen.rgb)
        spent = time.perf_counter() - begun
        self._rate = 0.5 * self._rate + 0.5 * rays / max(spent, 1e-6)
        return picture, spent

    def _welcome(self, client: Any) -> None:
        """Track the camera of a browser that connects."""
        self._rays[client.client_id] = 0

        @client.camera.on_update
        def _(_camera: Any) -> None:
            if client.client_id in self._rays:
                self._rays[client.client_id] = 0
                self._changed.set()

        self._changed.set()

    def _clear(self) -> None:
        for client in self._stage.server.get_clients().values():
            client.scene.set_background_image(None)

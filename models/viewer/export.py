"""The panel of the viewer that writes the model's mesh to a file: format, grid points, crop, triangles, texture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from data.errors import UserError
from data.limits import span
from models.mesh.extraction import EmptySurfaceError
from models.mesh.output import HOLDS, companions, require_format
from models.requests import PIECES, PUBLISHED_RESOLUTION, TEXTURE, TEXTURE_SIZE, VIEWS, MeshRequest
from models.results.experiment import Experiment
from models.results.request_checks import require_extraction
from models.viewer.handles import CropBox
from models.viewer.scene_display import SceneDisplay


class ExportPanel:
    """The controls; the mesh is written by the thread of the model, which asks for the request."""

    def __init__(self, stage: SceneDisplay, crop: CropBox) -> None:
        """Add the controls to the page."""
        gui, words = stage.server.gui, stage.words
        self._crop, self._words, self._is_wanted = crop, words, False
        self._clean = VIEWS if stage.scene.masks is None else PIECES  # as reconstruct
        (least, finest), most = span(MeshRequest, "resolution"), span(MeshRequest, "decimate")[1]
        with gui.add_folder(words("export"), expand_by_default=False):
            self.format = gui.add_dropdown(words("format"), tuple(HOLDS), initial_value=".glb")
            self.resolution = gui.add_number(words("resolution"), PUBLISHED_RESOLUTION, min=least, max=finest, step=1)
            self.is_cropped = gui.add_checkbox(words("is_cropped"), False)
            self.triangles = gui.add_number(words("triangles"), 0, min=0, max=most, step=1000)
            self.is_textured = gui.add_checkbox(words("texture"), False)
            write = gui.add_button(words("write"))
            self.told = gui.add_markdown("")
        write.on_click(lambda _event: self.press())

    def press(self) -> None:
        """Ask for the mesh."""
        self._is_wanted, self.told.content = True, self._words("computing")

    def serve(self, experiment: Experiment, step: int, write: Callable[[MeshRequest], object]) -> None:
        """Write a wanted mesh to meshes/ of the experiment, named by the step, and show its files or an error.

        `write` writes the mesh of a request, and raises UserError or EmptySurfaceError.
        """
        if not self._is_wanted:
            return
        self._is_wanted = False
        try:
            path = experiment.path("meshes", f"{step:08d}{self.format.value}")
            request = self.request(path)
            require_extraction(request)
            write(request)
        except (UserError, EmptySurfaceError) as error:
            self.told.content = str(error)
            return
        names = [path, *companions(path, request.color)]
        self.told.content = f"{self._words('written')} {', '.join(f'`{name}`' for name in names)}"

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

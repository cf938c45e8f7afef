"""Sessions of the viewer: of a scene (`--mode inspect --view`), a trained model (`--mode view`), a training (`--view`).

That of a scene does not load Jittor.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import UserError, is_allocation_failure, reason
from data.io import streams
from data.scenes.scene import Scene
from models.mesh.extraction import EmptySurfaceError
from models.results.callback import TRAINING, Callback
from models.viewer.camera_tools import CameraTools
from models.viewer.scene_display import SceneDisplay, words
from models.viewer.server import start, stop
from models.viewer.tools import Boxes, ConfKeys, CropBox, Ruler

if TYPE_CHECKING:
    from models.mesh.mesh import Surface
    from models.requests import MeshRequest
    from models.results.context import EvalContext
    from models.results.experiment import Experiment
    from models.viewer.live_render import LiveRenderer

AT_ONCE = 0.3  # seconds for the first image of a new camera
BETWEEN = 1.0  # seconds for one between two parts of an extraction
FINEST_SECONDS = 6.0  # seconds for the finest one
SHARE = 0.03  # fraction of the training time for renderings of the viewer
LONGEST_RENDERING = 0.4  # seconds of training time for one rendering
REPEAT_SECONDS = 5.0  # seconds after which a rendering during training is repeated
MOST_CHECKPOINTS = 500


def look_at_model(
    now: EvalContext, mesh: MeshRequest, checkpoints: Mapping[int, Path], keys: ConfKeys, place: Place
) -> None:
    """Show a trained model until Ctrl-C.

    Args:
        mesh: the mesh that is shown.
        checkpoints: files by step, of which a list is shown.
        keys: the conf and its scene folder.
    """
    say = now.log.info
    server = start(place.host, place.port, now.experiment.folder.name, streams.say)  # no log gets the token
    stage = SceneDisplay(server, now.experiment.scene, words(place.language), say, is_alone=True)
    session = _ModelSession(stage, now, checkpoints, keys, say)
    _repeat(server, partial(session.turn, mesh), say)


def _repeat(server: Any, work: Callable[[], None], say: Callable[[str], None]) -> None:
    """Work until Ctrl-C, then stop the server."""
    try:
        while True:
            work()
    except KeyboardInterrupt:
        say("the viewer is closed")
    finally:
        stop(server)


class _ModelSession:
    """The model of one of the checkpoints, and what browsers ask for."""

    def __init__(
        self,
        stage: SceneDisplay,
        now: EvalContext,
        checkpoints: Mapping[int, Path],
        keys: ConfKeys,
        say: Callable[[str], None],
    ) -> None:
        """Add the tools and the list of checkpoints to the page."""
        from models.viewer.live_render import LiveRenderer
        from models.viewer.tools import ExportPanel

        self._stage, self._now, self._paused = stage, now, now
        self._live = LiveRenderer(stage)
        self._step_shown: int | None = None  # step
        downscale = now.experiment.conf.dataset.downscale
        self._panel = ExportPanel(stage, add_tools(stage, keys, downscale, now.experiment.folder, say))
        steps, step = sorted(checkpoints)[-MOST_CHECKPOINTS:], stage.words("step")
        self._files, self._steps = checkpoints, {f"{step} {number}": number for number in steps}
        self._chosen: Any = None
        if len(steps) > 1:
            at = now.step if now.step in steps else steps[-1]
            self._chosen = stage.server.gui.add_dropdown(
                stage.words("checkpoint"), tuple(self._steps), initial_value=f"{step} {at}"
            )
            self._chosen.on_update(lambda _event: self._live.refresh())
        self._live.warm_up(now)

    def turn(self, mesh: MeshRequest) -> None:
        """Do what is asked for now. A failure is shown on the page, and ends nothing but a failing GPU does."""
        try:
            is_idle = self._turn(mesh)
        except Exception as error:  # noqa: BLE001 (of libraries, for values that no one tried)
            from models.machine import memory
            from models.machine.cuda.choice import last_words

            if is_allocation_failure(error):
                memory.release_after_failure(error)
            elif last_words(error):
                raise
            self._live.tell(reason(error))
            is_idle = True
        self._live.busy(not is_idle)
        if is_idle:
            self._live.wait(POLL_SECONDS)

    def _turn(self, mesh: MeshRequest) -> bool:
        """Show the chosen checkpoint, write a wanted mesh, render an image; returns whether there is nothing to do."""
        from models.results.meshes import validate_mesh

        live, stage = self._live, self._stage
        wanted = self._now.step if self._chosen is None else self._steps[self._chosen.value]
        if wanted != self._step_shown:
            self._step_shown = wanted
            live.busy(True)
            loaded = self._now if wanted == self._now.step else _loaded(live, self._now, self._files[wanted])
            if loaded is not None:
                self._now = loaded
                live.forget_mesh()
                live.tell(f"{stage.words('step')} {loaded.step}")
                # Browsers get their images between the parts of the extraction.
                self._paused = replace(loaded, pause=partial(live.draw, loaded, AT_ONCE, BETWEEN))
                _show(live, stage, self._paused, mesh)
        self._panel.serve(self._now.experiment, self._now.step, partial(validate_mesh, self._paused))
        return live.draw(self._now, AT_ONCE, FINEST_SECONDS) == 0.0


def _loaded(live: LiveRenderer, now: EvalContext, path: Path) -> EvalContext | None:
    """The model of a checkpoint; None, with the error shown and the model kept, if it cannot be read."""
    from models.checkpoints.ours import load_checkpoint

    try:
        return now.at(load_checkpoint(path))
    except UserError as error:
        live.tell(str(error))
        return None


def _show(live: LiveRenderer, stage: SceneDisplay, now: EvalContext, request: MeshRequest) -> None:
    """Show the mesh of a step and its caption; the latter only if there is no surface, or it does not fit."""
    from models.results.meshes import finished_mesh

    caption = f"{stage.words('step')} {now.step}"
    try:
        surface = finished_mesh(now, request)
    except (EmptySurfaceError, UserError) as error:
        now.log.info(str(error))
        live.tell(f"{caption}: {stage.words('no_surface')}")
    else:
        live.show_mesh(surface)
        live.tell(caption)
    live.refresh()


class ViewerCallback(Callback):
    """The viewer during a training: shows the newest mesh, and renderings in a small fraction of the time."""

    name = "the viewer"

    def __init__(self, keys: ConfKeys, place: Place, say: Callable[[str], None]) -> None:
        self._keys, self._place, self._say = keys, place, say
        self._server: Any = None
        self._begun = self._fresh = time.perf_counter()
        self._spent = 0.0
        self._is_closed = False

    def begin(self, experiment: Experiment) -> None:
        """Start the server; raises UserError if it cannot be started. Camera paths are written to the folder."""
        self._experiment = experiment
        self._server = start(self._place.host, self._place.port, experiment.scene.name, self._say)

    @cached_property
    def _live(self) -> LiveRenderer:
        """The renderings, built with the scene at the first use, after Jittor is initialised."""
        from models.viewer.live_render import LiveRenderer

        # Browsers without a GPU use the CPU cores of the training: the rest is drawn only on request.
        experiment, texts = self._experiment, words(self._place.language)
        stage = SceneDisplay(self._server, experiment.scene, texts, self._say, is_alone=True)
        live = LiveRenderer(stage)
        live.busy(False)
        add_tools(stage, self._keys, experiment.conf.dataset.downscale, experiment.folder, self._say)
        return live

    def scalars(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Show the logged scalars."""
        del seconds
        psnr, say = values["Statistics/psnr"], words(self._place.language)
        self._alone(lambda: self._live.tell(f"{say('training')}, {say('step')} {step}, {say('batch_psnr')} {psnr:.2f}"))

    def mesh(self, step: int, surface: Surface) -> None:
        """Show the newest mesh."""
        del step
        self._alone(lambda: self._live.show_mesh(surface))

    def after_step(self, context: Callable[[], EvalContext]) -> None:
        """Render an image if a browser is connected and there is time."""
        left = SHARE * (time.perf_counter() - self._begun) - self._spent
        if left > 0.0:
            self._alone(lambda: self._draw(context, min(left, LONGEST_RENDERING)))

    def _draw(self, context: Callable[[], EvalContext], longest: float) -> None:
        """Render the current model if a browser requests it or the last image is old."""
        now = time.perf_counter()
        if now - self._fresh > REPEAT_SECONDS:
            self._fresh = now
            self._live.refresh()
        self._spent += self._live.draw(context(), longest, longest)

    def write(self, step: int, seconds: float, state: str) -> None:
        """Close the viewer at the end of the training."""
        del seconds
        if state != TRAINING and not self._is_closed:
            self._close(
                f"the training ended at step {step}, and the viewer is closed; --mode view shows the model again"
            )

    def _alone(self, work: Callable[[], None]) -> None:
        """Errors of the viewer close the viewer, not the training."""
        if self._is_closed:
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001 (errors of a library that runs its own threads)
            self._close(f"the viewer is closed, the training continues: {reason(error)}")

    def _close(self, sentence: str) -> None:
        self._is_closed = True
        self._say(sentence)
        with contextlib.suppress(Exception):
            stop(self._server)


def add_tools(
    stage: SceneDisplay, keys: ConfKeys, downscale: int, results: Path, say: Callable[[str], None]
) -> CropBox:
    """Add the tools to the page; camera paths are written to the folder `results`. Returns the crop box."""
    crop = CropBox(stage, keys, say)
    Boxes(stage, keys.folder, downscale, say)
    Ruler(stage, say)
    CameraTools(stage, results, say)
    return crop


POLL_SECONDS = 0.5  # polling interval in seconds


@dataclass(frozen=True)
class Place:
    """Address and language of the viewer."""

    host: str
    port: int
    language: str | None


def look_at_scene(scene: Scene, keys: ConfKeys, downscale: int, place: Place, say: Callable[[str], None]) -> None:
    """Show a scene until Ctrl-C; raises UserError if the server cannot be started.

    The images of the scene folder are `downscale` times as large as those of `scene`.
    """
    server = start(place.host, place.port, scene.name, say)
    add_tools(SceneDisplay(server, scene, words(place.language), say), keys, downscale, keys.folder, say)
    _repeat(server, partial(time.sleep, POLL_SECONDS), say)

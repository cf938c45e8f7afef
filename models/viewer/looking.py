"""`--mode view` and `--view`: the loop that serves the browsers, and the viewer that follows a training."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError
from data.scenes.scene import Scene
from models.results.follower import TRAINING, Follower
from models.viewer.boxes import Boxes
from models.viewer.server import start, stop
from models.viewer.stage import Stage
from models.viewer.words import words

if TYPE_CHECKING:
    from models.results.snapshot import Snapshot
    from models.surface.described import Surface

A_MOMENT = 0.5  # seconds between two looks at whether something is to be done
PATIENCE = 30.0  # seconds that the finest picture may take
SHARE = 0.03  # of a training's time that pictures for the viewer take
LONGEST = 0.4  # seconds of a training that one of them takes
FRESH = 5.0  # seconds after which a picture of a training is old
MOST_CHECKPOINTS = 500


@dataclass(frozen=True)
class Place:
    """Where the viewer listens, and in which language it speaks."""

    host: str
    port: int
    language: str | None


def look_at_scene(scene: Scene, folder: Path, downscale: int, place: Place, say: Callable[[str], None]) -> None:
    """Show a scene until Ctrl-C; raises UserError where the viewer cannot listen."""
    server = start(place.host, place.port, scene.name, say)
    Boxes(Stage(server, scene, words(place.language), say), folder, downscale, say)
    try:
        while True:
            time.sleep(A_MOMENT)
    except KeyboardInterrupt:
        say("the viewer is closed")
    finally:
        stop(server)


def look_at_model(
    snapshot: Callable[[], Snapshot],
    mesh: Callable[[Snapshot], Surface | None],
    checkpoints: Mapping[int, Path],
    go_to: Callable[[Path], None],
    place: Place,
) -> None:
    """Show a trained model until Ctrl-C.

    Args:
        snapshot: the model as it is.
        mesh: its mesh; None where there is no surface.
        checkpoints: files by step; the slider over them asks `go_to` to load one.
    """
    from models.viewer.live import Live

    now = snapshot()
    say, dataset = now.log.info, now.experiment.conf.dataset
    server = start(place.host, place.port, now.experiment.folder.name, say)
    stage = Stage(server, now.experiment.scene, words(place.language), say)
    live = Live(stage)
    Boxes(stage, Path(dataset.data_dir), dataset.downscale, say)
    steps = sorted(checkpoints)[-MOST_CHECKPOINTS:]
    slider = None
    if len(steps) > 1:
        at = steps.index(now.step) if now.step in steps else len(steps) - 1
        slider = server.gui.add_slider(stage.words("checkpoint"), 0, len(steps) - 1, 1, at)
        slider.on_update(lambda _event: live.refresh())
    shown = None
    try:
        while True:
            wanted = now.step if slider is None else steps[int(slider.value)]
            if wanted != shown:
                if wanted != now.step:
                    go_to(checkpoints[wanted])
                now, shown = snapshot(), wanted
                _show(live, stage, now, mesh(now))
            if live.draw(now, PATIENCE if slider is None else PATIENCE / 2) == 0.0:
                live.wait(A_MOMENT)
    except KeyboardInterrupt:
        say("the viewer is closed")
    finally:
        stop(server)


def _show(live: object, stage: Stage, now: Snapshot, surface: Surface | None) -> None:
    """The mesh of a step, and what is said of it."""
    told = f"{stage.words('step')} {now.step}"
    if surface is None:
        live.tell(f"{told}: {stage.words('no_surface')}")
    else:
        live.show_mesh(surface)
        live.tell(told)
    live.refresh()


class ViewFollower(Follower):
    """The viewer while a training runs: its newest mesh, and pictures in a small share of its time."""

    name = "the viewer"

    def __init__(self, scene: Scene, folder: Path, downscale: int, place: Place, say: Callable[[str], None]) -> None:
        """Begin to listen; raises UserError where that cannot be."""
        self._scene, self._folder, self._downscale, self._say = scene, folder, downscale, say
        self._place, self._live, self._stage = place, None, None
        self._server = start(place.host, place.port, scene.name, say)
        self._begun = self._fresh = time.perf_counter()
        self._spent = 0.0

    def _ready(self) -> None:
        """Set the stage, once Jittor is there."""
        if self._live is None:
            from models.viewer.live import Live

            self._stage = Stage(self._server, self._scene, words(self._place.language), self._say)
            self._live = Live(self._stage)
            Boxes(self._stage, self._folder, self._downscale, self._say)

    def scalars(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """The numbers of a report."""
        self._ready()
        told = (
            f"{self._stage.words('training')}, {self._stage.words('step')} {step}, PSNR {values['Statistics/psnr']:.2f}"
        )
        self._live.tell(told)

    def mesh(self, step: int, surface: Surface) -> None:
        """The newest mesh."""
        del step
        self._ready()
        self._live.show_mesh(surface)

    def after_step(self, snapshot: Callable[[], Snapshot]) -> None:
        """A picture, where a browser looks and there is time for it."""
        now = time.perf_counter()
        left = SHARE * (now - self._begun) - self._spent
        if left <= 0.0:
            return
        self._ready()
        if now - self._fresh > FRESH:
            self._fresh = now
            self._live.refresh()
        self._spent += self._live.draw(snapshot(), min(left, LONGEST))

    def write(self, step: int, seconds: float, state: str) -> None:
        """The end of a training is the viewer's."""
        if state == TRAINING:
            return
        self._say(f"the viewer closes with the training at step {step}; --mode view opens the model again")
        stop(self._server)


def mesh_or_none(make: Callable[[], Surface], tell: Callable[[str], None], empty: type[Exception]) -> Surface | None:
    """What `make` makes; None, and a word about it, where there is no surface or it does not fit."""
    try:
        return make()
    except empty as error:
        tell(str(error))
    except UserError as error:
        tell(str(error))
    return None

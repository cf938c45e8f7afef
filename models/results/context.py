"""A trained model at one step, with everything that its outputs depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from data.io.bars import phase
from data.rays import Rays
from models.experiment import Experiment
from models.methods.protocol import Model
from models.results.chunks import ResultChunks
from models.results.render import RenderedView, render_view
from models.training.logger import RunLogger

A_MOMENT = 1.0  # seconds; longer renderings have a progress bar


@dataclass(frozen=True)
class EvalContext:
    """A model at one step, with everything that its images, meshes and metrics depend on."""

    experiment: Experiment
    model: Model
    step: int
    seconds: float  # training time so far
    log: RunLogger
    chunks: ResultChunks
    pause: Callable[[], object] | None = None  # called between the parts of a mesh, for renderings of the viewer

    def parts(self, items: Iterable[Any], desc: str) -> Iterator[Any]:
        """`items`, the parts of a mesh, with a progress bar and a pause after each."""
        for item in self.log.progress(items, desc=desc, leave=False):
            yield item
            if self.pause is not None:
                self.pause()

    @phase("images")
    def render(self, rays: Rays, shape: tuple[int, int]) -> RenderedView:
        """The image of rays [h * w] with shape (h, w); shows a progress bar if it takes longer than A_MOMENT."""
        chunk = self.chunks.rays(self.model, rays)
        bar = partial(self.log.progress, desc="image", unit="chunk", leave=False, delay=A_MOMENT)
        return render_view(self.model, rays, shape, chunk, self.step, bar)

"""A trained model at one step, with everything that its outputs depend on, and the table of its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data.io.clock import phase
from data.rays import Rays
from data.scenes.scene import Scene
from data.scenes.scene_checks import summary
from models.conf import ExperimentConfig, flat
from models.config.blocks import TrainConfig
from models.config.hocon import DEVICES, base_values, same
from models.config.strict import AUTO, excerpt
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig
from models.machine import backend, memory
from models.methods.block import ModelConfig
from models.methods.protocol import Model
from models.methods.registry import build_model
from models.ops import sizes
from models.ops.sizes import encoding_width
from models.plan import DEPTH_MAPS, SCORED_FROM, Decision, TrainingPlan
from models.results.experiment import Experiment, plan_of
from models.results.render import RenderedView
from models.runs.logger import RunLogger
from models.training.checkpoint import Checkpoint
from models.training.trainer import generators, restore_model

PATIENCE_SECONDS = 1.0  # longer renderings have a progress bar


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
        """The image of rays [h * w] with shape (h, w), with a progress bar after PATIENCE_SECONDS."""
        chunk = self.chunks.rays(self.model, rays)
        starts = range(0, len(rays), chunk)
        bar = self.log.progress(starts, desc="image", unit="chunk", leave=False, delay=PATIENCE_SECONDS)
        # Without jitter; the chunk size affects only memory and speed.
        parts = [self.model.view(rays.at(slice(start, start + chunk)), self.step) for start in bar]
        columns = zip(*(vars(part).values() for part in parts), strict=True)  # of RayView
        rgb, normal, distance, opacity = (np.concatenate(column).reshape(*shape, -1) for column in columns)
        return RenderedView(rgb, normal, distance[..., 0], opacity[..., 0])

    def at(self, checkpoint: Checkpoint) -> EvalContext:
        """The same model with the weights of a checkpoint, the averaged ones if there are any."""
        averaged = checkpoint.ema if self.experiment.conf.train.ema_decay > 0 else {}
        restore_model(self.model, replace(checkpoint, tensors=averaged or checkpoint.tensors))
        return replace(self, step=checkpoint.step, seconds=float(checkpoint.state.get("seconds", 0.0)))


def opened(experiment: Experiment, log: RunLogger) -> EvalContext:
    """The model of a checkpoint with its cameras, without what only a training needs.

    Raises UserError if the checkpoint does not fit conf or scene.
    """
    conf, checkpoint, views = experiment.conf, experiment.checkpoint, experiment.views
    assert checkpoint is not None  # `open_results` raises without one
    log_inputs(experiment, log)
    backend.allow_tf32(conf.train.tf32)
    model = build_model(conf.model, conf.train, generators(conf.train.seed)[0], plan_of(experiment))
    model.see(views)
    plan = with_table(plan_of(experiment), conf.model, conf.train, model.weights, flat(conf))
    experiment = replace(experiment, plan=plan)
    chunks = ResultChunks(conf.train)
    context = EvalContext(experiment, model, 0, 0.0, log, chunks).at(checkpoint)
    log.info(f"resuming from the checkpoint of step {context.step}")
    return context


def log_inputs(experiment: Experiment, log: RunLogger) -> None:
    """Log the device, sizes that depend on it, and the scene if its photographs are loaded."""
    device, scene = backend.device_info(), experiment.views
    log.info(device.line())
    if keys := ", ".join(f"{old} ({new})" for old, new in experiment.conf.outdated.items()):
        log.warn(f"the conf has keys of the version before, read as those in parentheses: {keys}")
    if device.warning:
        log.warn(device.warning)
    of_scene = (summary(scene), *scene.notes) if isinstance(scene, Scene) else ()
    for text in filter(None, (sizes_line(experiment.conf), tiles_line(experiment.conf), *of_scene)):
        (log.warn if isinstance(scene, Scene) and text in scene.doubts else log.info)(text)


MOST_RENDER_RAYS = 2048  # larger chunks are not faster, half of it is 10 % slower
MOST_GRID_POINTS = 2**16  # the same for grids


class ResultChunks:
    """The chunk sizes of images and meshes, determined at first use."""

    def __init__(self, conf: TrainConfig) -> None:
        self._conf = conf
        self._rays = 0 if conf.render_chunk == AUTO else int(conf.render_chunk)
        self._points = 0

    def rays(self, model: Model, rays: Rays) -> int:
        """Rays per chunk; all rays if the model renders only whole images."""
        if model.shows_pictures:
            return len(rays)
        if not self._rays:

            def render(count: int) -> object:  # arbitrary rays: the content does not matter
                columns = (rays.origins, rays.directions, rays.near, rays.far)
                return model.view_fully(Rays(*(np.resize(values, (count, values.shape[1])) for values in columns)), 0)

            self._rays = memory.chunk_that_fits(MOST_RENDER_RAYS, render, self._conf.memory_limit).chunk
        return self._rays

    def points(self, distance: Callable[[np.ndarray], object]) -> int:
        """Points per chunk of a mesh grid; `distance` takes float32 [P, 3]."""
        if not self._points:
            limit = self._conf.memory_limit
            self._points = memory.chunk_that_fits(
                MOST_GRID_POINTS, lambda count: distance(np.zeros((count, 3), np.float32)), limit
            ).chunk
        return self._points


NO_RETURN = f"no return: no checkpoint from step {SCORED_FROM} on before the end [train.save_freq]"
COLLAPSE = "back to the best checkpoint when scored views stay worse for two checkpoints [train.save_freq]"

# Keys besides its weight that have no effect unless a loss is used.
OF_LOSSES = {"model.patches": "patches", "train.patches_from": "patches", "model.photographs.exposure_rate": "exposure"}
WEIGHT = "_weight"  # end of the keys of weights


def with_table(
    plan: TrainingPlan,
    conf: ModelConfig,
    train: TrainConfig,
    weights: Mapping[str, Decision],
    values: Mapping[str, Any],
) -> TrainingPlan:
    """The plan with its table, unless it has one, and of the keys without effect those that differ from confs/base.

    weights: of the losses that the plan uses, by name; values: all keys of the conf, dotted.
    """
    if plan.rows:
        return plan
    base = base_values(conf.type)
    changed = [key for key, value in values.items() if not same(value, base, key)]
    used = {name: weight for name, weight in weights.items() if weight.value > 0}
    keys = {weight.key for weight in weights.values()}
    idle = [*plan.unused, *(key for key, loss in OF_LOSSES.items() if loss not in used and values.get(key, True))]
    idle += [key for key, value in values.items() if key.endswith(WEIGHT) and key not in keys and value]
    unused = [one for one in idle if any(_within(key, [one]) for key in changed)]
    rows = [(name, getattr(plan, name).text()) for name in ("masks", "region", "background", "start")]
    sizes = ["train.batch_size", *(f"model.{key}" for key in conf.sizes if not _within(f"model.{key}", plan.unused))]
    first = "of the depth maps first, then " if plan.start.value == DEPTH_MAPS and not plan.points.is_forced else ""
    rows += [
        ("points", first + plan.points.text()),
        ("losses", _losses(weights)),
        ("schedules", _schedules(plan, train, values)),
        ("samples", ", ".join(f"{key} = {values[key]}" for key in sizes)),
        ("exposure", replace(plan.exposure, value="learned" if plan.exposure.value else "not learned").text()),
        ("collapse", COLLAPSE if train.save_freq and train.end_iter >= SCORED_FROM else NO_RETURN),
    ]
    return replace(plan, rows=rows, unused=unused)


def _within(key: str, blocks: Iterable[str]) -> bool:
    """Whether a dotted key is one of the keys, or in one of the blocks."""
    return any(f"{key}.".startswith(f"{block}.") for block in blocks)


def _losses(weights: Mapping[str, Decision]) -> str:
    """The losses with their weights, and why some were chosen."""
    used = ", ".join(f"{name} {weight.value:g}" for name, weight in weights.items() if weight.value > 0)
    fixed = "".join(f"; {name}: fixed" for name, weight in weights.items() if not weight.key)
    notes = [
        f"{name} {weight.text()}" if weight.value > 0 else f"no {name}: {weight.reason} [{weight.key}]"
        for name, weight in weights.items()
        if weight.reason
    ]
    return "; ".join([f"{used} [train.NAME_weight; eikonal: train.igr_weight{fixed}]", *notes])


def _schedules(plan: TrainingPlan, train: TrainConfig, values: Mapping[str, Any]) -> str:
    """Learning rate, pruning and the bound of inv_s."""
    last = train.learning_rate * train.learning_rate_alpha
    parts = [f"{train.end_iter} steps, learning rate {train.learning_rate:g} to {last:g} ({train.learning_rate_decay})"]
    if plan.prune_from.key:
        step = round(plan.prune_from.value * train.end_iter)
        parts.append(f"cells pruned from step {replace(plan.prune_from, value=step).text()}")
    if plan.largest_inv_s.key:
        bound = plan.largest_inv_s
        words = (
            "not bounded" if bound.value is None else f"at most {bound.value / values['model.packed.last_step']:.0f}"
        )
        parts.append(f"inv_s {replace(bound, value=words).text()}")
    return "; ".join(parts)


def sizes_line(conf: ExperimentConfig) -> str:
    """One line for the log: the keys that depend on the device, with their values; "" if there are none."""
    now = flat(conf)
    chosen = {key: now[key] for key in conf.by_device}
    fitting = [device for device in DEVICES if chosen == {key: one[device] for key, one in conf.by_device.items()}]
    listed = ", ".join(f"{key} = {excerpt(value)}" for key, value in chosen.items())
    return f"sizes for {' and '.join(fitting) or 'another device'}: {listed}" if chosen else ""


def tiles_line(conf: ExperimentConfig) -> str:
    """One line for the log if a GPU computes networks layer by layer, because of their sizes; else ""."""
    networks = {name: getattr(conf.model, name, None) for name in ("nerf", "sdf_network", "rendering_network")}
    large = [name for name, network in networks.items() if network is not None and not fits_tiles(network)]
    if backend.device_info().name == "cpu" or not large:
        return ""
    return f"too large for tiles of points, so that a GPU computes their layers one by one: {', '.join(large)}"


def fits_tiles(network: NerfConfig | SdfConfig | ColorConfig) -> bool:
    """Whether a GPU evaluates a network in tiles: by its layers, their channels, and those of the encoded inputs."""
    if isinstance(network, NerfConfig):  # the density counts as a layer
        view = encoding_width(network.d_in_view, network.multires_view)
        layers, width, encoded = network.D + len(network.heads) + 1, network.W, max(network.trunk[0][0], view)
    elif isinstance(network, SdfConfig):
        layers, width = network.n_layers + 1, max(network.d_hidden, network.features)
        encoded = network.embedded_width
    else:
        layers, width = network.n_layers + 1, max(network.d_hidden, network.d_feature)
        encoded = network.widths[0][0] - network.d_feature
    return sizes.fits_tiles(layers, width, encoded)

"""A trained model: its conf, cameras and plan, and its networks when a result needs them. Jittor is loaded then."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from data.errors import UserError, is_allocation_failure
from models.machine.ranks import own_gpu

if TYPE_CHECKING:
    from data.scenes.scene import Posed, Scene
    from models.conf import ExperimentConfig
    from models.results.context import EvalContext
    from models.results.experiment import Experiment


class TrainedModel(AbstractContextManager):
    """A model of `open_model`. Its scene is loaded, and its networks are built, at the first result that needs them."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @property
    def scene(self) -> Scene:
        """The training photographs with their cameras; raises UserError if they are not those of the training."""
        return self.experiment.scene

    @property
    def views(self) -> Posed:
        """The cameras of the training photographs, which are not decoded if that can be avoided."""
        return self.experiment.views

    @cached_property
    def context(self) -> EvalContext:
        """The networks, on the device, with all that results need."""
        from models.runs.logger import RunLogger

        checkpoint, views = self.experiment.checkpoint, self.experiment.views  # raises before Jittor is loaded
        del views
        log = RunLogger(self.experiment.folder, resumed_at=None if checkpoint is None else checkpoint.step)
        from models.results.context import opened

        return opened(self.experiment, log)

    @contextmanager
    def working(self) -> Iterator[EvalContext]:
        """The `context` in the body, with the end of `withdrawn_if_it_fails`."""
        with using_device(), withdrawn_if_it_fails(self.experiment):
            yield self.context

    def export_splats(self) -> Path:
        """Write the Gaussians to `splats/<step>.ply` in the world frame; raises UserError if there are none."""
        from data.io.files import write_result
        from models.checkpoints.splat_ply import SPLATS_NETWORK, encode
        from models.methods.gaussians.conf import SURFELS, GaussiansConfig
        from models.runs.logger import RunLogger

        checkpoint, block = self.experiment.checkpoint, self.experiment.conf.model
        if checkpoint is None or SPLATS_NETWORK not in checkpoint.tensors:
            raise UserError(
                "--mode export_splats: the checkpoint has no Gaussians; use one with model.type = gaussians"
            )
        path, splats = self.experiment.path("splats", f"{checkpoint.step:08d}.ply"), checkpoint.tensors[SPLATS_NETWORK]
        is_flat = isinstance(block, GaussiansConfig) and block.gaussians.form == SURFELS
        write_result(path, encode(splats, self.views.scene_to_world, is_flat))
        with RunLogger(self.experiment.folder, resumed_at=checkpoint.step) as log:
            log.info(f"{len(splats['means'])} Gaussians: {path}")
        return path

    def close(self) -> None:
        """Return the memory of the networks to the system, for further work in this process."""
        if "context" in vars(self):
            from models.machine.memory import release_all

            self.context.log.close()
            del self.context
            release_all()

    def __exit__(self, *_: object) -> None:
        self.close()


_IN_USE, _TRAINING = threading.RLock(), threading.Lock()


@contextmanager
def using_device(is_training: bool = False) -> Iterator[None]:
    """The body computes with Jittor, which is for one thread, and holds the state of one training.

    Raises UserError while another thread computes, or a training runs if it `is_training`.
    """
    with ExitStack() as held:
        for lock in (_IN_USE, _TRAINING) if is_training else (_IN_USE,):
            if not lock.acquire(blocking=False):
                raise UserError(
                    "this process trains or computes results already; wait until that has ended, or start another "
                    "process"
                )
            held.callback(lock.release)
        yield


def choose_device(conf: ExperimentConfig, device: str, gpu: int, is_trained: bool = False) -> ExperimentConfig:
    """Choose the device; returns the conf with the values for it.

    Raises UserError if it is not available, or the networks need more memory than is free.
    """
    from models.conf import for_device
    from models.machine import jittor_import
    from models.results.capacity import require_networks

    jittor_import.select(device, own_gpu(gpu, os.environ))
    chosen = for_device(conf, jittor_import.device_name()) if conf.by_device else conf
    require_networks(chosen.model, is_trained)
    return chosen


@contextmanager
def withdrawn_if_it_fails(experiment: Experiment) -> Iterator[None]:
    """Release the lock at the end. A UserError, or the end of memory, removes the files of the run."""
    try:
        yield
    except (UserError, ImportError, MemoryError):
        experiment.withdraw()
        raise
    except (RuntimeError, OSError) as error:
        if is_allocation_failure(error):
            experiment.withdraw()
        raise
    finally:
        experiment.close()

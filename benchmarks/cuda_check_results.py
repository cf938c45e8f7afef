"""Images, meshes and the doctor's examples with the simulated GPU; see cuda_check.py.

Where the program reads a value from the GPU, a simulated one is returned, as in cuda_check_answers.py: every other ray
may be opaque, and the surface is a sphere.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.scenes.scene import Scene

if TYPE_CHECKING:  # which would load Jittor before the GPU is chosen
    from models.methods.conf import ExperimentConfig
    from models.methods.protocol import LevelSet

LEVEL = 8  # of the image: so many times smaller than the photograph
RESOLUTION = 32  # of the mesh, grid points along a side
RADIUS = 0.5  # of the sphere, working-frame units


def make(trainer: Any, conf: ExperimentConfig, scene: Scene) -> None:
    """Render the view of a photograph with its normals; extract meshes as during training and as by `--mode
    validate_mesh`.
    """
    from models.evaluation.validation import validate_image
    from models.experiment import Experiment
    from models.monitoring.logger import RunLogger
    from models.requests import NETWORK, PIECES, VERTEX, MeshRequest
    from models.results.chunks import ResultChunks
    from models.results.context import EvalContext
    from models.results.meshes import validate_mesh

    _pretend(type(trainer.result_model))
    trainer.settle()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        log = RunLogger(folder, quiet=True, is_written=False)
        experiment = Experiment(conf, folder, scene, None)
        behind, chunks = conf.train.background_rgb, ResultChunks(conf.train)
        seen = EvalContext(experiment, trainer.result_model, trainer.finished_steps, 0.0, behind, log, chunks)
        validate_image(seen, 0, LEVEL)
        if seen.model.level_set is not None:
            validate_mesh(seen, MeshRequest(RESOLUTION, color=NETWORK))
            validate_mesh(seen, MeshRequest(RESOLUTION, is_refined=True, clean=PIECES, color=VERTEX))


def _pretend(kind: type) -> None:
    """Patch models of this type so that they have a surface."""
    from models.methods.neus import visible

    level_set = kind.level_set
    visible.may_be_opaque = lambda rays, sdf, spacing, inv_s: np.arange(len(rays)) % 2 == 0

    def answered(self: Any) -> LevelSet | None:
        """The level set of the model, compiled and launched for each evaluation, with the values of a sphere."""
        found = level_set.fget(self)
        return found and replace(
            found,
            outward=lambda points: _asked(found.outward, points) and _sphere(points, found.threshold),
            gradient=found.gradient
            and (
                lambda points: _asked(found.gradient, points) and (_sphere(points, found.threshold), _outwards(points))
            ),
        )

    kind.level_set = property(answered)


def _asked(question: Callable[[np.ndarray], object], points: np.ndarray) -> bool:
    """True; the value itself is meaningless."""
    question(points)
    return True


def _sphere(points: np.ndarray, threshold: float) -> np.ndarray:
    """The field [P, 1] whose level set at `threshold` of its negative is the sphere."""
    away = np.linalg.norm(points, axis=1, keepdims=True) - RADIUS
    return (away - threshold).astype(np.float32)


def _outwards(points: np.ndarray) -> np.ndarray:
    """The gradients [P, 3] of the field."""
    return (points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-6)).astype(np.float32)


def examples() -> Iterator[str]:
    """Compute the doctor's example of each operation in its native form, forward and backward; yields their names."""
    from models.doctor.operations import results
    from models.ops.examples import MAKERS, kernels
    from models.ops.kernel import NATIVE

    for name, kernel in kernels().items():
        if kernel.is_native and name in MAKERS:
            results(MAKERS[name](np.random.default_rng(0)), NATIVE)
            yield name

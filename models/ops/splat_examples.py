"""Examples of the operations on Gaussians and images, for `examples`."""

from __future__ import annotations

import numpy as np

from models.machine.backend import jt
from models.ops.example import Example, Maker
from models.ops.kernel import Kernel
from models.ops.picture_loss import picture_loss
from models.ops.splat_project import camera_numbers, project_ellipsoids, project_surfels
from models.ops.splat_raster import Look, Raster, composite_ellipsoids, composite_surfels
from models.ops.splat_shade import shade_splats
from models.ops.splat_wander import step_of, wander_splats
from models.structs import Var

COUNT, WIDTH, HEIGHT = 40, 37, 18  # several tiles, those at the borders incomplete
DEGREE, REST = 3, 15
DISTANCE = 3.0
WANDER_RATE = 20.0


def _var(values: np.ndarray) -> Var:
    return jt.array(np.asarray(values, np.float32))


def _camera() -> Var:
    """A camera that looks at the origin."""
    pose = np.eye(4)
    pose[2, 3] = DISTANCE
    return _var(camera_numbers(pose, np.array([[WIDTH, 0, WIDTH / 2], [0, WIDTH, HEIGHT / 2], [0, 0, 1.0]])))


def _splats(rng: np.random.Generator) -> tuple[Var, Var, Var]:
    """Means, quaternions and logarithms of sizes."""
    means, quats = rng.normal(0.0, 0.4, (COUNT, 3)), rng.normal(size=(COUNT, 4))
    return _var(means), _var(quats), _var(rng.uniform(-3.0, -1.5, (COUNT, 3)))


def _project(kernel: Kernel, compared: int) -> Maker:
    """Without the radii, which are rounded up."""

    def make(rng: np.random.Generator) -> Example:
        splats = _splats(rng)
        return Example(kernel, (*splats, _camera(), WIDTH, HEIGHT), splats, compared)

    return make


def _composite(project: Kernel, kernel: Kernel) -> Maker:

    def make(rng: np.random.Generator) -> Example:
        seen = project(*_splats(rng), _camera(), WIDTH, HEIGHT)
        parts = {name: jt.array(value.numpy()) for name, value in vars(seen).items()}  # independent of the projection
        colors, opacities = _var(rng.random((COUNT, 3))), _var(rng.uniform(0.1, 0.9, (COUNT, 1)))
        look = Look(colors, opacities, _var(rng.random(3)), _var(np.zeros((COUNT, 2))))
        trained = [value for name, value in parts.items() if name != "radii"]
        arguments = (type(seen)(**parts), look, Raster(WIDTH, HEIGHT))
        return Example(kernel, arguments, (*trained, colors, opacities, look.probe))

    return make


def _shade(rng: np.random.Generator) -> Example:
    means, dc, rest = (_var(rng.normal(size=(COUNT, *shape))) for shape in ((3,), (3,), (REST, 3)))
    return Example(shade_splats, (means, dc, rest, _camera(), DEGREE), (means, dc, rest))


def _wander(rng: np.random.Generator) -> Example:
    """Most of them transparent enough to move, by about their distance."""
    opacities = _var(rng.uniform(-9.0, -1.0, (COUNT, 1)))
    return Example(wander_splats, (*_splats(rng), opacities, step_of(WANDER_RATE, False, 0)))


def _loss(rng: np.random.Generator) -> Example:
    picture, photograph = (_var(rng.random((HEIGHT, WIDTH, 3))) for _ in range(2))
    return Example(picture_loss, (picture, photograph, 0.2), (picture,))


SPLAT_MAKERS: dict[str, Maker] = {
    "project_ellipsoids": _project(project_ellipsoids, 3),
    "project_surfels": _project(project_surfels, 4),
    "shade_splats": _shade,
    "composite_ellipsoids": _composite(project_ellipsoids, composite_ellipsoids),
    "composite_surfels": _composite(project_surfels, composite_surfels),
    "wander_splats": _wander,
    "picture_loss": _loss,
}

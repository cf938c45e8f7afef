"""Of parity.py: the rows of the splat operations, and what each quantity of each golden file has reached.

Splats are compared with golden numbers of the published formulas (tests/golden/gaussians_*.npz, float64). Errors are
relative to each array's largest value.

golden/reached.json holds what was reached, by instruction set. Bounds say what a right port must reach. They lie far
above what this one does reach, and accuracy could be lost beneath them unseen. So a quantity also fails where it is
more than `SLACK` times what was reached, and beyond a share of its bound that rounding alone may take it to.

That share is small for fields, and for what is rendered at the depths of the file. It is large for what follows from
depths that are placed here: a distance that is rounded otherwise may move a sample by 1e-3 (upsample_ray.h says why),
and with it opacities, slopes and gradients sevenfold. The published code differs from itself as much, from float32 to
float64 and from one machine to another.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.machine import isa
from models.machine.backend import jt
from models.ops.gaussians import splat_raster
from models.ops.gaussians.splat_project import camera_numbers, project_ellipsoids, project_surfels, shade_splats
from models.ops.gaussians.splat_raster import COLOR, DEPTH, NORMAL, OPACITY

KEYS = {"in_means", "in_quats", "in_log_scales", "in_logit_opacities", "in_sh", "viewmat", "K"}
INPUTS = ("means", "quats", "log_scales", "logit_opacities", "sh")
DEGREE = {1: 0, 4: 1, 9: 2, 16: 3}  # of the harmonics, by how many there are
ELLIPSOID_BOUNDS, SURFEL_BOUNDS = (1e-5, 1e-4), (1e-4, 5e-4)  # of pictures, of gradients
PROJECTED = ("means2d", "conics", "ray_transforms", "normals", "radii")
LEAST_SHARE = 1e-6  # of the file's largest gradient: one below it, as of a ball's turns, is 0 but for rounding
LOSS_BOUND = 1e-4  # a sum over all pixels, which cancel


def is_of_gaussians(names: Iterable[str]) -> bool:
    """Whether a file with these arrays is one of Gaussians."""
    return set(names) >= KEYS


def computed(golden: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What this implementation makes of the inputs of a golden file, by its keys."""

    def var(name: str) -> jt.Var:
        return jt.array(np.asarray(golden[name], np.float32))

    is_flat = "ray_transforms" in golden
    inputs = {name: var(f"in_{name}") for name in INPUTS}
    size = int(golden["width"]), int(golden["height"])
    camera = jt.array(camera_numbers(golden["viewmat"], golden["K"]))
    project = project_surfels if is_flat else project_ellipsoids
    composite = splat_raster.composite_surfels if is_flat else splat_raster.composite_ellipsoids
    seen = project(inputs["means"], inputs["quats"], inputs["log_scales"], camera, *size)
    degree = DEGREE[inputs["sh"].shape[1]]
    colors = shade_splats(inputs["means"], inputs["sh"][:, 0], inputs["sh"][:, 1:], camera, degree)
    opacities = inputs["logit_opacities"].sigmoid().unsqueeze(1)
    look = splat_raster.Look(colors, opacities, var("background"))
    shown = composite(seen, look, splat_raster.Raster(*size))
    found = {"image": shown[:, :, COLOR], "alpha": shown[:, :, OPACITY], "depth_sum": shown[:, :, DEPTH]}
    weights = {"image": "w_color", "alpha": "w_alpha", "depth_sum": "w_depth"}
    if is_flat:
        found["normal_sum"], weights["normal_sum"] = shown[:, :, NORMAL], "w_normal"
    loss = sum((value * var(weights[name]).reshape(value.shape)).sum() for name, value in found.items())
    found |= {"means2d": seen.means2d, "depths": seen.depths, "radii": seen.radii, "rgb": colors, "loss": loss}
    found |= {"ray_transforms": seen.to_picture, "normals": seen.normals} if is_flat else {"conics": seen.conics}
    targets = inputs | {"means2d": seen.means2d}
    gradients = jt.grad(loss, list(targets.values()))
    found |= {f"grad_{name}": value for name, value in zip(targets, gradients, strict=True)}
    return {name: value.numpy() for name, value in found.items()}


def rows(golden: Mapping[str, np.ndarray]) -> Iterator[tuple[str, float, float]]:
    """Name, error and bound of each compared quantity."""
    picture_bound, gradient_bound = SURFEL_BOUNDS if "ray_transforms" in golden else ELLIPSOID_BOUNDS
    is_seen = np.asarray(golden["radii"]).reshape(len(golden["in_means"]), -1).max(axis=1) > 0
    gradient_scale = max(float(np.abs(golden[f"grad_{name}"]).max(initial=0.0)) for name in INPUTS)
    for name, value in computed(golden).items():
        target = np.asarray(golden[name], np.float64)
        if value.size != target.size:
            yield name, float("inf"), 0.0
            continue
        error = np.abs(value.reshape(target.shape) - target)
        if name in PROJECTED:
            error = error[is_seen]  # what is culled has no place in the picture, and no two programs give it the same
        worst = float("nan") if np.isnan(error).any() else float(error.max(initial=0.0))
        bound = gradient_bound if name.startswith("grad_") else LOSS_BOUND if name == "loss" else picture_bound
        largest = float(np.abs(target[is_seen] if name in PROJECTED else target).max(initial=0.0)) or 1.0
        if name == "radii":
            largest, bound = max(largest * picture_bound, 1.0), 1.0  # whole pixels, rounded up
        if name.startswith("grad_"):
            largest = max(largest, LEAST_SHARE * gradient_scale)
        yield name, worst / largest, bound


TABLE = Path(__file__).resolve().parent / "golden" / "reached.json"
SLACK = 2.0
STEADY_FLOOR, MOVING_FLOOR = 0.03, 0.5  # of the bound
GIVEN_DEPTHS = " (given depths)"  # behind the name of what is rendered at the depths of the file


@dataclass(frozen=True)
class Row:
    """One compared quantity."""

    name: str
    error: float
    bound: float
    before: float | None = None  # what an earlier version reached

    @property
    def allowed(self) -> float:
        """The largest error that passes."""
        if self.before is None:
            return self.bound
        is_steady = self.name.startswith("field/") or self.name.endswith(GIVEN_DEPTHS)
        floor = STEADY_FLOOR if is_steady else MOVING_FLOOR
        return min(self.bound, max(SLACK * self.before, floor * self.bound))

    @property
    def passed(self) -> bool:
        """Whether the error is one that passes; NaN is not."""
        return bool(self.error <= self.allowed)


def of_file(name: str) -> dict[str, float]:
    """Errors by quantity that a golden file has reached here; empty for a file or an instruction set not listed."""
    return read().get(isa.level().name, {}).get(name, {}).get("reached", {})


def read() -> dict[str, dict]:
    """The table: instruction set -> golden file -> the commit and the errors."""
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}


def keep(name: str, errors: Iterable[tuple[str, float]]) -> None:
    """Put the errors of a golden file into the table, in the place of those before."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=TABLE.parent, capture_output=True, text=True, check=True
    ).stdout.strip()
    table = read()
    entry = {"commit": commit, "reached": {quantity: float(f"{error:.2g}") for quantity, error in errors}}
    table.setdefault(isa.level().name, {})[name] = entry
    write(table)


def write(table: dict[str, dict]) -> None:
    """Replace the table."""
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")

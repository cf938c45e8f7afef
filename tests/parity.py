"""Compare this implementation with golden numbers of the published NeuS.

    python tests/parity.py [--keep] FILE.npz [FILE.npz ...]

Builds everything from the file's `meta_json`, prints the worst error of each quantity beside what is allowed, and exits
with status 1 where that is exceeded: its bound, or twice what it has reached before (golden_rows.py). With --keep what
is reached now takes the place of that. Errors are absolute but where the bound says otherwise. Files of Gaussians are
told by their keys, see golden_rows.py; large matrices may be drawn from a seed, see seeded_weights.py.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import golden_rows
from dense_renderer import DenseRenderer, Image, Networks, training_losses
from golden_rows import GIVEN_DEPTHS, Row
from seeded_weights import drawn_weights, some_of

from data.rays import Rays
from models.config.blocks import TrainConfig
from models.config.strict import from_tree
from models.estimators.base import upload
from models.estimators.conf import HierarchicalConfig
from models.fields.color import RenderingNetwork
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig, VarianceConfig
from models.fields.radiance import NeRF
from models.fields.sdf import SDFNetwork, SingleVarianceNetwork
from models.fields.state import import_state, named_parameters
from models.machine.backend import jt
from models.plan import wants_masks
from models.rendering.losses import binary_mask, masked_psnr, mean_term
from models.training.optimizer import Optimizer, learning_rate

FIELD_BOUND = 2e-5  # values and gradients at given points
COLOR_BOUND = 1e-4
DEPTH_BOUND = 2e-3  # depths, weights, cdf: the published code differs from itself in float64 by 5e-4
RAY_GRADIENT_BOUND = 3e-3
LOSS_BOUND = 1e-4  # relative
WEIGHT_GRADIENT_BOUND = 3e-3  # relative L2, of norms above the floor
WEIGHT_GRADIENT_FLOOR = 1e-4
LEARNING_RATE_BOUND = 1e-6  # relative
TRAINING_LOSS_BOUND = 1e-2  # relative, at every step
KEEP = "--keep"
NETWORKS = ("nerf", "sdf_network_fine", "variance_network_fine", "color_network_fine")


class Golden:
    """One golden file and the model built from it."""

    def __init__(self, path: str | Path) -> None:
        with np.load(path, allow_pickle=False) as archive:
            self.arrays = {name: archive[name] for name in archive.files}
        self.meta = meta = json.loads(str(self.arrays.pop("meta_json")))
        self.arrays |= drawn_weights(self.arrays, meta.get("seed", 0))
        rng = np.random.default_rng(0)

        def block(kind: type, name: str) -> Any:
            return from_tree(kind, meta[name], name)

        sdf, color = SDFNetwork(block(SdfConfig, "sdf_network"), rng), block(ColorConfig, "rendering_network")
        sharpness, color = (
            SingleVarianceNetwork(block(VarianceConfig, "variance_network")),
            RenderingNetwork(color, rng),
        )
        self.networks = {"sdf_network_fine": sdf, "variance_network_fine": sharpness, "color_network_fine": color}
        if any(name.startswith("weights/nerf.") for name in self.arrays):
            self.networks["nerf"] = NeRF(block(NerfConfig, "nerf"), rng)
        self.reset_weights()
        networks = Networks(sdf, color, sharpness, self.networks.get("nerf"))
        self.renderer = DenseRenderer(networks, block(HierarchicalConfig, "neus_renderer"))
        self.conf = _train_config(meta)
        self.rays = Rays(self["in/rays_o"], self["in/rays_d"], self["in/near"], self["in/far"])
        self.target = jt.array(self["in/true_rgb"])
        self.mask = binary_mask(jt.array(self["in/mask"]) if wants_masks(self.conf) else None, len(self.rays))

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def reset_weights(self) -> None:
        """The initial weights of the file."""
        for network, module in self.networks.items():
            prefix = f"weights/{network}."
            import_state(module, {n[len(prefix) :]: a for n, a in self.arrays.items() if n.startswith(prefix)})

    def trained(self) -> dict[str, jt.Var]:
        """Parameters by `<network>.<name>`, in the published order; without the background where it is not used."""
        used = [name for name in NETWORKS if name != "nerf" or self.renderer.conf.n_outside > 0]
        return {f"{name}.{leaf}": var for name in used for leaf, var in named_parameters(self.networks[name]).items()}

    def render(self, depths: jt.Var | None = None) -> Image:
        """The batch, without jitter; at depths [R, N] where they are given."""
        background = np.ones(3, np.float32) if self.conf.use_white_bkgd else None
        return self.renderer.render(upload(self.rays), None, float(self.meta["cos_anneal_ratio"]), background, depths)


def losses(golden: Golden, output: Image) -> dict[str, jt.Var]:
    """The mean of each term of the training loss, and `total`."""
    return training_losses(output, golden.target, golden.mask, golden.conf)


def _train_config(meta: dict) -> TrainConfig:
    """The keys of the training block the file has; the others, which nothing here reads, are filled in."""
    keys = ("learning_rate", "learning_rate_alpha", "end_iter", "warm_up_end", "use_white_bkgd")
    block = {key: meta[key] for key in (*keys, "igr_weight", "mask_weight")}
    filler = dict.fromkeys(("save_freq", "val_freq", "val_mesh_freq"), 0) | {"report_freq": 1, "batch_size": 1}
    return from_tree(TrainConfig, block | filler | {"validate_resolution_level": 1}, "train")


def worst(actual: np.ndarray, golden: np.ndarray) -> float:
    """Largest absolute difference; infinite where the shapes differ in more than axes of length one."""
    actual, golden = np.asarray(actual, np.float64), np.asarray(golden, np.float64)
    if actual.size != golden.size or [n for n in actual.shape if n > 1] != [n for n in golden.shape if n > 1]:
        return float("inf")
    difference = np.abs(actual.reshape(golden.shape) - golden)
    return float("nan") if np.isnan(difference).any() else float(difference.max(initial=0.0))


def relative(actual: float, golden: float) -> float:
    """|actual - golden| / |golden|; the absolute difference where golden is 0."""
    return abs(float(actual) - float(golden)) / (abs(float(golden)) or 1.0)


def field_rows(golden: Golden) -> list[Row]:
    """Fields at given points."""
    names = ("points", "gradient", "view_dirs", "feature")
    points, gradient, directions, feature = (jt.array(golden[f"field/{name}"]) for name in names)
    sdf, color = golden.networks["sdf_network_fine"], golden.networks["color_network_fine"]
    out = sdf(points)
    values = {"sdf": out.sdf, "feature": out.feature, "gradient": out.gradient}
    values |= {
        "color": color(points, gradient, directions, feature),
        "sdf (value only)": sdf.bind().distance(points),
    }
    if "nerf" in golden.networks and "field/nerf_points" in golden.arrays:
        found = golden.networks["nerf"](jt.array(golden["field/nerf_points"]), directions)
        values |= dict(zip(("nerf_density", "nerf_rgb"), found, strict=True))
    return [
        Row(f"field/{name}", worst(value.numpy(), golden[f"field/{name.split(' ')[0]}"]), FIELD_BOUND)
        for name, value in values.items()
    ]


def placing_rows(golden: Golden) -> list[Row]:
    """Where the renderer places samples."""
    with jt.no_grad():
        *rounds, depths = golden.renderer.up_sample_rounds(upload(golden.rays))
    found = {f"up_sample_{i}": values for i, values in enumerate(rounds)} | {"z_vals": depths}
    expected = {name for name in golden.arrays if name.startswith("out/up_sample_")}
    count = Row("out/up_sample rounds", abs(len(rounds) - len(expected)), 0)
    return [count, *(Row(f"out/{n}", worst(v.numpy(), golden[f"out/{n}"]), DEPTH_BOUND) for n, v in found.items())]


def render_rows(golden: Golden, output: Image) -> list[Row]:
    """What the renderer gives."""
    weights, inside, on_file = output.weights.numpy(), output.inside_sphere.numpy(), golden["out/inside_sphere"]
    eikonal = mean_term("UNIT_LENGTH", output.sdf_gradient, counts=output.near_sphere).mean().numpy()
    found = {
        "weights": (weights, DEPTH_BOUND),
        "cdf_fine": (output.cdf.numpy(), DEPTH_BOUND),
        "weight_max": (weights.max(axis=1, keepdims=True), DEPTH_BOUND),
        "gradients": (output.sdf_gradient.numpy(), RAY_GRADIENT_BOUND),
        "color_fine": (output.rgb.numpy(), COLOR_BOUND),
        "weight_sum": (output.opacity.numpy(), COLOR_BOUND),
        "s_val": (np.broadcast_to(1.0 / output.inv_s.numpy(), (len(golden.rays), 1)), COLOR_BOUND),
    }
    # The share of 0/1 entries that differ: a section at the sphere's rim may fall on either side.
    mismatch = float(np.mean(inside.reshape(on_file.shape) != on_file))
    return [
        *(Row(f"out/{name}", worst(value, golden[f"out/{name}"]), bound) for name, (value, bound) in found.items()),
        Row("out/gradient_error", relative(eikonal.item(), golden["out/gradient_error"]), LOSS_BOUND),
        Row("out/inside_sphere (share)", mismatch, 1e-2),
    ]


def loss_rows(golden: Golden, output: Image) -> list[Row]:
    """The loss and its gradient with respect to every weight."""
    means = losses(golden, output)
    values = means | {"psnr": masked_psnr(output.rgb, golden.target, golden.mask)}
    rows = [Row(f"loss/{n}", relative(v.item(), golden[f"loss/{n}"]), LOSS_BOUND) for n, v in values.items()]
    trained = golden.trained()
    gradients = dict(zip(trained, jt.grad(means["total"], list(trained.values())), strict=True))
    expected = {name[len("grad/") :] for name in golden.arrays if name.startswith("grad/")}
    rows.append(Row("grad: names not trained", len(expected - set(trained)), 0))
    for name in sorted(expected & set(trained)):
        target = golden[f"grad/{name}"].astype(np.float64)
        found = some_of(gradients[name].numpy(), target.size)  # a file may hold some entries only
        scale = max(np.linalg.norm(target), WEIGHT_GRADIENT_FLOOR)
        error = float(np.linalg.norm(found.reshape(target.shape) - target) / scale)
        rows.append(Row(f"grad/{name}", error, WEIGHT_GRADIENT_BOUND))
    return rows


def training_rows(golden: Golden) -> list[Row]:
    """Learning rates and losses of the recorded Adam steps on this batch."""
    golden.reset_weights()
    named = golden.trained()
    trained, optimizer = list(named.values()), Optimizer({"": named})
    rate_errors, loss_errors = [], []
    for step, expected in enumerate(golden["train/loss"]):
        total = losses(golden, golden.render())["total"]
        rate = learning_rate(golden.conf)(step)
        rate_errors.append(relative(rate, golden["train/lr"][step]))
        gradients = jt.grad(total, trained)
        optimizer.step(gradients, rate)
        loss_errors.append(relative(total.item(), expected))
    return [
        Row("train/lr (relative)", float(np.max(rate_errors)), LEARNING_RATE_BOUND),
        Row("train/loss (relative)", float(np.max(loss_errors)), TRAINING_LOSS_BOUND),
    ]


def compare(path: str | Path) -> list[Row]:
    """All rows of one golden file."""
    before = golden_rows.of_file(Path(path).name)
    return [replace(row, before=before.get(row.name)) for row in _rows(path)]


def _rows(path: str | Path) -> list[Row]:
    with np.load(path, allow_pickle=False) as archive:
        if golden_rows.is_of_gaussians(archive.files):
            return [Row(*entry) for entry in golden_rows.rows({name: archive[name] for name in archive.files})]
    golden = Golden(path)
    free, given = (
        [*render_rows(golden, output), *loss_rows(golden, output)]
        for output in (golden.render(), golden.render(jt.array(golden["out/z_vals"])))
    )
    given = [replace(row, name=row.name + GIVEN_DEPTHS) for row in given]
    return [*field_rows(golden), *given, *placing_rows(golden), *free, *training_rows(golden)]


def main(arguments: list[str]) -> int:
    """Print the table of each file; 0 where all rows pass."""
    paths = [argument for argument in arguments if argument != KEEP]
    if not paths:
        print(__doc__)
        return 2
    failed = 0
    for path in paths:
        print(path)
        rows = compare(path)
        for row in rows:
            failed += not row.passed
            print(f"  {'ok  ' if row.passed else 'FAIL'} {row.name:58s} {row.error:9.2e}  <= {row.allowed:.1e}")
        if KEEP in arguments:
            golden_rows.keep(Path(path).name, [(row.name, row.error) for row in rows])
    print(f"{failed} quantities beyond what is allowed" if failed else "all within what is allowed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

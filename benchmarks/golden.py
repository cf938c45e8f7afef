"""Make a golden file of the released networks: `PYTHON golden.py FOLDER OUT.npz [SEED]`, for tests/parity.py.

PYTHON is an interpreter with PyTorch, FOLDER a checkout of https://github.com/Totoro97/NeuS, of which only
models/fields.py and models/renderer.py are imported, unchanged, as in peer.py. They compute in float64, so that
tests/parity.py measures only the errors of this implementation. The weights resemble trained ones: the initial
distances to a sphere with added noise, all columns of the encoding in use, and a larger inv_s.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peer import COUNT_EPS, OPACITY_MARGIN, stand_in_for_unused
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from seeded_weights import DRAWN, drawn_weights, some_of

WIDTH, RAYS, POINTS, STEPS = 256, 16, 32, 4
GRADIENTS = 256  # entries kept of each weight's gradient
META: dict[str, Any] = {
    "sdf_network": {"d_out": WIDTH + 1, "d_in": 3, "d_hidden": WIDTH, "n_layers": 8, "skip_in": [4], "multires": 6}
    | {"bias": 0.5, "scale": 1.0, "geometric_init": True, "weight_norm": True},
    "rendering_network": {"d_feature": WIDTH, "mode": "idr", "d_in": 9, "d_out": 3, "d_hidden": WIDTH, "n_layers": 4}
    | {"weight_norm": True, "multires_view": 4, "squeeze_out": True},
    "variance_network": {"init_val": 0.3},
    "neus_renderer": {"n_samples": 64, "n_importance": 64, "n_outside": 0, "up_sample_steps": 4, "perturb": 0.0},
    "use_white_bkgd": False,
    "mask_weight": 0.1,
    "igr_weight": 0.1,
    "cos_anneal_ratio": 1.0,
    "learning_rate": 5e-4,
    "learning_rate_alpha": 0.05,
    "end_iter": 40,
    "warm_up_end": 4,
}
SHARPNESS = 0.4  # inv_s 55
SURFACE_RADIUS = 0.45


class Float64Torch:
    """Replaces the module torch in the published renderer, such that `Tensor` follows the default type."""

    Tensor = staticmethod(lambda values: torch.tensor(values))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def networks_and_renderer() -> tuple[dict[str, torch.nn.Module], Any]:
    """The published networks and their renderer."""
    from models import fields, renderer

    renderer.torch = Float64Torch()
    networks = {
        "sdf_network_fine": fields.SDFNetwork(**META["sdf_network"]),
        "variance_network_fine": fields.SingleVarianceNetwork(**META["variance_network"]),
        "color_network_fine": fields.RenderingNetwork(**META["rendering_network"]),
    }
    return networks, renderer.NeuSRenderer(None, *networks.values(), **META["neus_renderer"])


def columns_of(name: str, inputs: int, outputs: int) -> np.ndarray:
    """Mean and spread of the columns of a matrix, [2, inputs]; the row of the distance has a separate initial mean."""
    network, layer, _ = name.split(".")
    if network == "color_network_fine":
        return np.stack([np.zeros(inputs), np.full(inputs, 1.0 / np.sqrt(inputs))]).astype(np.float32)
    spread, mean = np.full(inputs, np.sqrt(6.0 / outputs)), np.zeros(inputs)
    encoded = 6 * META["sdf_network"]["multires"]
    if layer in ("lin0", "lin4"):  # of the encoding, fine octaves count less
        spread[-encoded:] *= 0.25 * np.repeat(2.0 ** -np.arange(encoded // 6), 6)
    if layer == "lin8":
        spread, mean = np.full(inputs, 0.01), np.full(inputs, np.sqrt(np.pi / inputs))
    return np.stack([mean, spread]).astype(np.float32)


def weights_of(networks: dict[str, torch.nn.Module], seed: int) -> dict[str, np.ndarray]:
    """The parts of the weights that the file stores."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for network, module in networks.items():
        for leaf, value in module.state_dict().items():
            name, shape = f"{network}.{leaf}", tuple(value.shape)
            if leaf.endswith("weight_v"):
                arrays[DRAWN + name] = columns_of(name, shape[1], shape[0])
            elif leaf == "variance":
                arrays[f"weights/{name}"] = np.float32(SHARPNESS)
            else:
                arrays[f"weights/{name}"] = rng.normal(0.0, 0.02, shape).astype(np.float32)
    for name, matrix in drawn_weights(arrays, seed).items():  # lengths near those of the rows
        length = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
        arrays[name[:-1] + "g"] = (length * (1.0 + arrays[name[:-1] + "g"])).astype(np.float32)
    return arrays


def load(networks: dict[str, torch.nn.Module], arrays: dict[str, np.ndarray], seed: int) -> None:
    """Set the networks to the weights of a file."""
    every = arrays | drawn_weights(arrays, seed)
    for network, module in networks.items():
        prefix = f"weights/{network}."
        state = {
            key[len(prefix) :]: torch.from_numpy(np.asarray(a)) for key, a in every.items() if key.startswith(prefix)
        }
        module.load_state_dict({name: value.double() for name, value in state.items()})


def on_spheres(rng: np.random.Generator, count: int, radius: float) -> np.ndarray:
    """Random points at a radius, [count, 3]."""
    points = rng.normal(size=(count, 3))
    return points * radius / np.linalg.norm(points, axis=1, keepdims=True)


def inputs_of(seed: int) -> dict[str, np.ndarray]:
    """A batch of rays, and points with view directions."""
    rng = np.random.default_rng(seed + 1000)
    origins = on_spheres(rng, RAYS, 2.5)
    directions = rng.normal(0.0, 0.3, (RAYS, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    middle = -(origins * directions).sum(axis=1, keepdims=True)
    arrays = {"in/rays_o": origins, "in/rays_d": directions, "in/near": middle - 1.0, "in/far": middle + 1.0}
    arrays |= {"in/true_rgb": rng.random((RAYS, 3)), "in/mask": rng.random((RAYS, 1)) > 0.3}
    arrays |= {"field/points": on_spheres(rng, POINTS, 1.0) * rng.random((POINTS, 1))}
    arrays |= {"field/view_dirs": on_spheres(rng, POINTS, 1.0)}
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def losses_of(output: dict[str, torch.Tensor], given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The training loss and its terms, as in the published training loop."""
    mask, difference = given["in/mask"], output["color_fine"] - given["in/true_rgb"]
    count = mask.sum() + COUNT_EPS
    opacity = output["weight_sum"].clip(OPACITY_MARGIN, 1.0 - OPACITY_MARGIN)
    terms = {
        "color": (difference * mask).abs().sum() / count,
        "eikonal": output["gradient_error"],
        "mask": functional.binary_cross_entropy(opacity, mask),
    }
    total = terms["color"] + META["igr_weight"] * terms["eikonal"] + META["mask_weight"] * terms["mask"]
    psnr = -10.0 * torch.log10((difference**2 * mask).sum() / (3.0 * count))
    return terms | {"total": total, "psnr": psnr}


def rates() -> list[float]:
    """Learning rates of the first steps, all within the warm-up."""
    return [META["learning_rate"] * step / META["warm_up_end"] for step in range(STEPS)]


def fields_at(networks: dict[str, torch.nn.Module], given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The networks at the points; the colour is computed from gradient and feature rounded as stored in the file."""
    output = networks["sdf_network_fine"](given["field/points"])
    gradient = networks["sdf_network_fine"].gradient(given["field/points"]).squeeze(1)
    rounded = (value.float().double() for value in (gradient, output[:, 1:]))
    normals, features = rounded
    color = networks["color_network_fine"](given["field/points"], normals, given["field/view_dirs"], features)
    return {"sdf": output[:, :1], "feature": output[:, 1:], "gradient": gradient, "color": color}


def watch_rounds(renderer: Any, found: dict[str, torch.Tensor]) -> None:
    """Record the results of the renderer's up-sampling in `found`; later calls overwrite them."""
    up_sample, merge = renderer.up_sample, renderer.cat_z_vals

    def watched_up_sample(*arguments: Any) -> torch.Tensor:
        found[f"out/up_sample_{int(np.log2(arguments[-1] / 64))}"] = depths = up_sample(*arguments)
        return depths

    def watched_merge(*arguments: Any, **options: Any) -> tuple[torch.Tensor, ...]:
        found["out/z_vals"], sdf = merge(*arguments, **options)
        return found["out/z_vals"], sdf

    renderer.up_sample, renderer.cat_z_vals = watched_up_sample, watched_merge


def compute(networks: dict[str, torch.nn.Module], renderer: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """All entries of a golden file besides weights and inputs."""
    given = {name: torch.from_numpy(value).double() for name, value in inputs.items()}
    found = {f"field/{name}": value for name, value in fields_at(networks, given).items()}
    rounds: dict[str, torch.Tensor] = {}
    watch_rounds(renderer, rounds)
    rays = [given[f"in/{name}"] for name in ("rays_o", "rays_d", "near", "far")]

    def render() -> dict[str, torch.Tensor]:
        return renderer.render(*rays, perturb_overwrite=0, cos_anneal_ratio=META["cos_anneal_ratio"])

    output = render()
    found |= rounds | {f"out/{name}": value for name, value in output.items()}
    terms = losses_of(output, given)
    found |= {f"loss/{name}": value for name, value in terms.items()}
    trained = {f"{network}.{leaf}": value for network, m in networks.items() for leaf, value in m.named_parameters()}
    gradients = torch.autograd.grad(terms["total"], list(trained.values()))
    for name, gradient in zip(trained, gradients, strict=True):
        found[f"grad/{name}"] = some_of(gradient.numpy(), GRADIENTS)
    optimizer, losses = torch.optim.Adam(list(trained.values())), []
    for rate in rates():
        optimizer.param_groups[0]["lr"] = rate
        loss = losses_of(render(), given)["total"]
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found | {"train/loss": np.array(losses), "train/lr": np.array(rates())}


def main(folder: str, out: str, seed: str = "1") -> None:
    """Write the file."""
    sys.path.insert(0, folder)
    stand_in_for_unused()
    torch.set_default_dtype(torch.float64)
    networks, renderer = networks_and_renderer()
    arrays, inputs = weights_of(networks, int(seed)), inputs_of(int(seed))
    load(networks, arrays, int(seed))
    around = torch.from_numpy(on_spheres(np.random.default_rng(0), 4000, SURFACE_RADIUS))
    with torch.no_grad():  # a surface there, on the whole
        arrays["weights/sdf_network_fine.lin8.bias"][0] -= networks["sdf_network_fine"].sdf(around).mean().item()
    load(networks, arrays, int(seed))
    found = {n: v.detach().numpy() if torch.is_tensor(v) else v for n, v in compute(networks, renderer, inputs).items()}
    exact = {name: value if name.startswith("train/") else np.float32(value) for name, value in found.items()}
    meta = json.dumps(META | {"name": Path(out).stem, "seed": int(seed)})
    np.savez_compressed(out, meta_json=meta, **arrays, **inputs, **exact)
    print(found["out/weight_sum"].ravel().round(3), found["loss/total"], Path(out).stat().st_size)


if __name__ == "__main__":
    main(*sys.argv[1:])

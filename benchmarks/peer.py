"""The published code's side of a measurement: `PYTHON peer.py FOLDER JOB.npz WEIGHTS.npz`, started by bm_step.py.

Runs in the interpreter that has PyTorch, with nothing of this project but `serve`; FOLDER is a checkout of
https://github.com/Totoro97/NeuS, of which only models/fields.py and models/renderer.py are imported, unchanged. They
run on the CPU because the program that would send all tensors to CUDA, exp_runner.py, is left out; the step below does
what its training loop does (commit 6e0a230) but for logging.
"""

from __future__ import annotations

import json
import sys
import time
import types
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from serve import serve  # not through the package: its `models` must not hide FOLDER's
from torch.nn import functional

# Imported at the head of the published files and used by nothing that is measured.
UNUSED_MODULES = {"icecream": ("ic",), "mcubes": ()}
IMAGE_CHUNK = 512  # rays at a time of a validation image: the released batch_size
OPACITY_MARGIN = 1e-3
COUNT_EPS = 1e-5


def stand_in_for_unused() -> None:
    """Empty modules for imports that are unused and not installed."""
    for name, members in UNUSED_MODULES.items():
        if find_spec(name) is None:
            module = types.ModuleType(name)
            for member in members:
                setattr(module, member, None)
            sys.modules[name] = module


class Peer:
    """The published networks and renderer, built from a job, and their commands."""

    def __init__(self, job: str, weights: str) -> None:
        with np.load(job) as file:
            self.meta = json.loads(str(file["meta"]))
            self.arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "meta"}
        self.build(weights)
        self.share_jitter()

    def build(self, weights: str) -> None:
        """Networks with the given weights, renderer and optimiser."""
        from models import fields, renderer

        model = self.meta["model"]
        networks = {
            "nerf": fields.NeRF(**model["nerf"]),
            "sdf_network_fine": fields.SDFNetwork(**model["sdf_network"]),
            "variance_network_fine": fields.SingleVarianceNetwork(**model["variance_network"]),
            "color_network_fine": fields.RenderingNetwork(**model["rendering_network"]),
        }
        states: dict[str, dict[str, torch.Tensor]] = {}
        with np.load(weights) as file:
            for key in file.files:
                network, _, name = key.partition("/")
                states.setdefault(network, {})[name] = torch.from_numpy(file[key])
        for network, state in states.items():
            networks[network].load_state_dict(state)
        self.renderer = renderer.NeuSRenderer(*networks.values(), **model["neus_renderer"])
        parameters = [parameter for network in networks.values() for parameter in network.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=self.meta["learning_rate"])

    def share_jitter(self) -> None:
        """Make the renderer's torch.rand return the jitter of our trainer, so that the losses can be compared."""
        generator = np.random.default_rng(self.meta["seed"])
        torch.rand = lambda size: torch.from_numpy(generator.random(tuple(size), dtype=np.float32))

    def about(self) -> dict[str, Any]:
        """Number of threads and version of PyTorch."""
        return {"about": {"threads": torch.get_num_threads(), "torch": torch.__version__}}

    def step(self) -> dict[str, Any]:
        """One training step, from the batch in tensors to updated weights."""
        begin = time.perf_counter()
        arrays, meta = self.arrays, self.meta
        mask = arrays["mask"]
        mask = (mask > 0.5).float() if meta["mask_weight"] > 0 else torch.ones_like(mask)
        output = self.render("ray", slice(None), -1)
        difference = (output["color_fine"] - arrays["rgb"]) * mask
        color = functional.l1_loss(difference, torch.zeros_like(difference), reduction="sum")
        opacity = output["weight_sum"].clip(OPACITY_MARGIN, 1.0 - OPACITY_MARGIN)
        loss = (
            color / (mask.sum() + COUNT_EPS)
            + meta["igr_weight"] * output["gradient_error"]
            + meta["mask_weight"] * functional.binary_cross_entropy(opacity, mask)
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"seconds": time.perf_counter() - begin, "loss": float(loss.item())}

    def image(self, path: str) -> dict[str, Any]:
        """A validation image with its normals; its colours are written to `path`."""
        begin = time.perf_counter()
        colors, normals = [], []
        for start in range(0, len(self.arrays["image_origins"]), IMAGE_CHUNK):
            output = self.render("image", slice(start, start + IMAGE_CHUNK), 0)
            colors.append(output["color_fine"].detach().numpy())
            weights = output["weights"][:, : output["gradients"].shape[1], None] * output["inside_sphere"][..., None]
            normals.append((output["gradients"] * weights).sum(dim=1).detach().numpy())
        side = self.meta["image_side"]
        rgb = np.concatenate(colors).reshape(side, side, 3)
        np.concatenate(normals)
        seconds = time.perf_counter() - begin
        np.save(path, rgb)
        return {"seconds": seconds}

    def render(self, kind: str, part: slice, perturb: int) -> dict[str, torch.Tensor]:
        """The published renderer's output for some of the job's rays; perturb 0 renders without jitter."""
        rays = [self.arrays[f"{kind}_{name}"][part] for name in ("origins", "directions", "near", "far")]
        ratio = self.meta["cos_anneal_ratio"]
        return self.renderer.render(*rays, perturb_overwrite=perturb, background_rgb=None, cos_anneal_ratio=ratio)


def main(folder: str, job: str, weights: str) -> None:
    """Serve the job with the networks of the checkout."""
    sys.path.insert(0, folder)
    stand_in_for_unused()
    peer = Peer(job, weights)
    serve({"about": peer.about, "step": peer.step, "image": peer.image})


if __name__ == "__main__":
    main(*sys.argv[1:])

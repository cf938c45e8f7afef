"""The published code's side of a measurement: `PYTHON peer.py FOLDER JOB.npz WEIGHTS.npz [cuda]`; see bm_step.py.

Runs in the interpreter that has PyTorch, with nothing of this project but `serve`; FOLDER is a checkout of
https://github.com/Totoro97/NeuS, of which only models/fields.py and models/renderer.py are imported, unchanged. They
run on the CPU unless all tensors are made on a GPU, as its exp_runner.py does; the step below does what its training
loop does (commit 6e0a230) but for logging.
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

    def __init__(self, job: str, weights: str, device: str) -> None:
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        with np.load(job) as file:
            self.meta = json.loads(str(file["meta"]))
            self.arrays = {name: torch.from_numpy(file[name]).to(device) for name in file.files if name != "meta"}
        self.build(weights)
        if (
            device == "cpu"
        ):  # the renderer's torch.rand returns the jitter of our trainer, so that losses are comparable
            generator = np.random.default_rng(self.meta["seed"])
            torch.rand = lambda size: torch.from_numpy(generator.random(tuple(size), dtype=np.float32))

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

    def step(self) -> dict[str, Any]:
        """One training step, from the batch in tensors to updated weights."""
        self.wait()
        begin = time.perf_counter()
        arrays, meta = self.arrays, self.meta
        mask = arrays["mask"]
        mask = (mask > 0.5).float() if meta["mask_weight"] > 0 else torch.ones_like(mask)
        rays = [arrays[f"ray_{name}"] for name in ("origins", "directions", "near", "far")]
        output = self.renderer.render(*rays, background_rgb=None, cos_anneal_ratio=meta["cos_anneal_ratio"])
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
        self.wait()
        return {"seconds": time.perf_counter() - begin, "loss": float(loss.item())}


def use_tf32() -> dict[str, Any]:
    """From now on, products in TF32; returns the GPU's peak memory so far."""
    torch.backends.cuda.matmul.allow_tf32 = True
    return {"peak_mib": torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0}


def main(folder: str, job: str, weights: str, device: str = "cpu") -> None:
    """Serve the job with the networks of the checkout."""
    sys.path.insert(0, folder)
    stand_in_for_unused()
    if device == "cuda":  # as its exp_runner.py does: a default device would leave torch.Tensor(...) on the CPU
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
    serve({"step": Peer(job, weights, device).step, "use_tf32": use_tf32})


if __name__ == "__main__":
    main(*sys.argv[1:])

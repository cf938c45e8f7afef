"""One image by the public torch-splatting, on the CPU, beside which `bm_gaussians.py raster --peer` sets ours.

`python benchmarks/peer_splatting.py CHECKOUT SCENE.npz`, in a separate environment with torch and einops; CHECKOUT
is a copy of github.com/hbb1/torch-splatting. Its text is read as it is, its hard-coded device apart, which is set to
the CPU. Prints a line of JSON: the median seconds of forward and backward passes, and what the process grew by.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np
import torch

REPEATS = 3
PACKAGE = "gaussian_splatting"
NEEDED = ("gauss_render.py", "utils/sh_utils.py", "utils/camera_utils.py")


def patched(checkout: Path, folder: Path) -> None:
    """The required parts of the package, with the CPU as the device."""
    for name in NEEDED:
        source, copy = checkout / PACKAGE / name, folder / PACKAGE / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8")
        copy.write_text(text.replace("'cuda'", "'cpu'").replace('"cuda"', '"cpu"'), encoding="utf-8")


def measure(scene: np.lib.npyio.NpzFile) -> dict[str, float]:
    """Seconds and bytes of the sum of the image and its gradients."""
    render = importlib.import_module(f"{PACKAGE}.gauss_render")
    cameras = importlib.import_module(f"{PACKAGE}.utils.camera_utils")

    def tensor(value: np.ndarray) -> torch.Tensor:
        return torch.tensor(np.asarray(value), dtype=torch.float32)

    intrinsic = torch.eye(4)
    intrinsic[:3, :3] = tensor(scene["K"])
    pose = torch.linalg.inv(tensor(scene["viewmat"]))
    camera = cameras.Camera(int(scene["width"]), int(scene["height"]), intrinsic, pose)
    leaves = {name: tensor(scene[name]).requires_grad_(True) for name in ("means", "quats", "sizes", "opacities", "sh")}
    renderer = render.GaussRenderer(active_sh_degree=3, white_bkgd=False)
    before, times = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(REPEATS):
        start = time.perf_counter(), time.process_time()
        model = SimpleNamespace(
            get_xyz=leaves["means"],
            get_opacity=leaves["opacities"].sigmoid(),
            get_scaling=leaves["sizes"].exp(),
            get_rotation=leaves["quats"],
            get_features=leaves["sh"],
        )
        renderer(camera, model)["render"].sum().backward()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    clock, processor = (median(column) for column in zip(*times, strict=True))
    threads = torch.get_num_threads()
    return {"seconds": clock, "processor_seconds": processor, "bytes": grown, "threads": threads}


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("scene", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        patched(given.checkout, Path(folder))
        sys.path.insert(0, folder)
        with np.load(given.scene) as scene:
            print(json.dumps(measure(scene)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Reconstructs photographs with pixelmap: `PYTHON pixelmap_driver.py PHOTOGRAPHS.npz RESULT.npz QUALITY`.

Runs in the interpreter that has pixelmap-multiview-python (0.1.1), with nothing of this project. PHOTOGRAPHS.npz has
`images`, uint8 [V, H, W, 3], and their `focal` length in pixels. The package accepts no poses: it finds the cameras
itself. RESULT.npz has its mesh, `vertices` [N, 3] and `triangles` [T, 3], and `poses`, [V, 3, 4], its frame to each
camera; NaN for photographs that it left out.
"""

from __future__ import annotations

import sys

import numpy as np
import pixelmap_multiview

LEFT_OUT = np.full((3, 4), np.nan)


def main(photographs: str, result: str, quality: str) -> None:
    """Reconstruct and write the result; a capture that the package rejects ends the process with its reason."""
    with np.load(photographs) as file:
        images, focal = file["images"], float(file["focal"])
    try:
        model = pixelmap_multiview.reconstruct(list(images), quality=quality, focal_px=focal)
    except pixelmap_multiview.ReconstructionError as error:
        sys.exit(str(error))
    poses = [LEFT_OUT if pose is None else pose.matrix for pose in model.cameras]
    np.savez(result, vertices=model.vertices, triangles=model.triangles, poses=np.stack(poses))


if __name__ == "__main__":
    main(*sys.argv[1:])

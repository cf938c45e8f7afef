"""COLMAP's camera models that OpenCV cannot express, against their formulas in COLMAP's documentation."""

import numpy as np
import pytest
from synthetic_scene import NAMES, photographs, read

from data.prepare.tracks import normalised
from data.scenes.undistort import Undistorter

WIDTH = HEIGHT = 200
FX, FY, CX, CY = 210.0, 214.0, 101.0, 98.5  # as COLMAP counts, from the corner


def polynomial(squared, *coefficients):
    return 1 + sum(value * squared ** (power + 1) for power, value in enumerate(coefficients))


def angles(x, y):
    """The direction as an equidistant fisheye shows it."""
    length = np.hypot(x, y)
    return np.array([x, y]) * np.arctan(length) / length


def thin_prism(x, y, k1, k2, p1, p2, k3, k4, s1, s2):
    u, v = angles(x, y)
    squared = u * u + v * v
    radial = polynomial(squared, k1, k2, k3, k4)
    tangential = 2 * p1 * u * v + p2 * (squared + 2 * u * u), 2 * p2 * u * v + p1 * (squared + 2 * v * v)
    return np.array([u * radial + tangential[0] + s1 * squared, v * radial + tangential[1] + s2 * squared])


def divided(x, y, k):
    """x = d / (1 + k |d|^2) solved for d."""
    length = np.hypot(x, y)
    return np.array([x, y]) * (1 - np.sqrt(1 - 4 * k * length**2)) / (2 * k * length) / length


MODELS = {
    "SIMPLE_FISHEYE": ((), angles),
    "FISHEYE": ((), angles),
    "FOV": (
        (0.7,),
        lambda x, y, w: np.array([x, y]) * np.arctan(2 * np.hypot(x, y) * np.tan(w / 2)) / w / np.hypot(x, y),
    ),
    "THIN_PRISM_FISHEYE": ((0.05, -0.02, 0.003, -0.002, 0.01, 0.004, 0.006, -0.005), thin_prism),
    "RAD_TAN_THIN_PRISM_FISHEYE": (
        (0.05, -0.02, 0.01, 0.004, 0.002, 0.001, *[0.0] * 6),
        lambda x, y, *k: angles(x, y) * polynomial((angles(x, y) ** 2).sum(), *k[:6]),
    ),
    "SIMPLE_DIVISION": ((-0.1,), divided),
    "DIVISION": ((-0.1,), divided),
    "EUCM": ((0.6, 1.1), lambda x, y, a, b: np.array([x, y]) / (a * np.sqrt(b * (x * x + y * y) + 1) + 1 - a)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_camera_model_that_only_colmap_has(name, tmp_path):
    parameters, formula = MODELS[name]
    photographs(tmp_path, NAMES)
    focals = (FX,) if name.startswith("SIMPLE") else (FX, FY)
    (tmp_path / "sparse" / "0").mkdir(parents=True)
    words = " ".join(map(str, (*focals, CX, CY, *parameters)))
    unused = "2 EQUIRECTANGULAR 80 40 80 40\n"
    (tmp_path / "sparse/0/cameras.txt").write_text(f"1 {name} {WIDTH} {HEIGHT} {words}\n{unused}")
    lines = (f"{n} 1 0 0 0 0 0 {5 + n} 1 {photograph}\n\n" for n, photograph in enumerate(NAMES, 1))
    (tmp_path / "sparse/0/images.txt").write_text("".join(lines))
    parsed, _ = read(tmp_path, roi="0 0 0 1")
    lens = parsed.images[0].lens
    for factor in (1, 2):  # a photograph reduced to half its size, too
        size = (WIDTH // factor, HEIGHT // factor)
        undistorter = Undistorter(lens, size)
        columns = np.tile(np.arange(size[0], dtype=np.float32), (size[1], 1))
        found = [undistorter(grid) for grid in (columns, np.ascontiguousarray(columns.T))]
        for row, column in ((30, 20), (70 // factor, 60), (40, 80)):
            x, y, _ = np.linalg.inv(undistorter.intrinsics) @ [column, row, 1]
            right = (formula(x, y, *parameters) * [focals[0], focals[-1]] + [CX, CY]) / factor - 0.5
            assert np.abs([grid[row, column] for grid in found] - right).max() < 0.04  # steps of OpenCV: 1/32 pixel
            if factor == 1:
                assert np.allclose(normalised(lens, right[None])[0], [x, y, 1], atol=1e-5)

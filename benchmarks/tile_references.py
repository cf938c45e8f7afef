"""The networks in tiles and their gradients in float64, for benchmarks/gpu_tiles.py.

The notation is that of csrc/cuda/softplus_net.h. Weights are packed as for the native operations: a matrix [outputs,
inputs], then a bias, layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.ops.sizes import SKIP_SCALE, SOFTPLUS_BETA, ColorSizes, NerfSizes, SdfSizes

Array = NDArray[np.float64]
Layers = list[tuple[Array, Array]]


def weights(rng: np.random.Generator, widths: Sequence[int]) -> Array:
    """Random packed weights that keep the size of what passes."""
    parts = []
    for inputs, outputs in zip(widths[::2], widths[1::2], strict=True):
        parts += [rng.normal(size=inputs * outputs) * np.sqrt(2.0 / inputs), 0.02 * rng.normal(size=outputs)]
    return np.concatenate(parts).astype(np.float32).astype(np.float64)


def sdf_weights(rng: np.random.Generator, widths: Sequence[int]) -> Array:
    """Those of a sphere (geometric initialisation), with noise."""
    packed = weights(rng, widths)
    made = layers_of(packed, widths)
    for matrix, _ in made:
        matrix *= np.sqrt(matrix.shape[1] / matrix.shape[0])
    made[0][0][:, 3:] *= 0.05
    made[-1][0][0] = np.sqrt(np.pi / widths[-2]) + 0.01 * rng.normal(size=widths[-2])
    made[-1][1][0] = -0.5
    return packed.astype(np.float32).astype(np.float64)


def layers_of(packed: Array, widths: Sequence[int]) -> Layers:
    """(matrix, bias) of each layer, views of the packed weights."""
    found, at = [], 0
    for inputs, outputs in zip(widths[::2], widths[1::2], strict=True):
        end = at + inputs * outputs
        found.append((packed[at:end].reshape(outputs, inputs), packed[end : end + outputs]))
        at = end + outputs
    return found


def encoding(x: Array, octaves: int) -> Array:
    """(x, sin x, cos x, sin 2x, ...)."""
    parts = [x]
    for octave in range(octaves):
        parts += [np.sin(x * 2.0**octave), np.cos(x * 2.0**octave)]
    return np.concatenate(parts, axis=1)


def _jacobian(encoded: Array, octaves: int) -> Array:
    """Of each channel with respect to its coordinate."""
    parts = [np.ones((len(encoded), 3))]
    for octave in range(octaves):
        at = 3 + 6 * octave
        parts += [2.0**octave * encoded[:, at + 3 : at + 6], -(2.0**octave) * encoded[:, at : at + 3]]
    return np.concatenate(parts, axis=1)


def _sdf_values(sizes: SdfSizes, layers: Layers, encoded: Array) -> tuple[list[Array], list[Array], Array]:
    """The inputs x_l and slopes s_l of the layers, and the outputs of the last."""
    inputs, slopes, h = [], [], encoded
    for index, (matrix, bias) in enumerate(layers):
        x = np.concatenate([h, encoded], axis=1) * SKIP_SCALE if sizes.skips_into(index) else h
        inputs.append(x)
        a = x @ matrix.T + bias
        h = np.logaddexp(0.0, SOFTPLUS_BETA * a) / SOFTPLUS_BETA
        slopes.append(1.0 / (1.0 + np.exp(-np.clip(SOFTPLUS_BETA * a, -700.0, 700.0))))
    return inputs, slopes[:-1], a


def sdf(
    sizes: SdfSizes, packed: Array, points: Array, d_sdf: Array, d_feature: Array, d_gradient: Array
) -> dict[str, Array]:
    """sdf, feature, gradient, and d_packed from their cotangents."""
    layers, encoded = layers_of(packed, sizes.widths), encoding(points, sizes.octaves)
    inputs, slopes, outputs = _sdf_values(sizes, layers, encoded)
    last, jacobian = len(layers) - 1, _jacobian(encoded, sizes.octaves)
    c: list[Any] = [None] * (last + 1)  # cotangents of h_l in the sweep
    total, row = np.zeros_like(encoded), np.broadcast_to(layers[last][0][0], inputs[last].shape)
    for index in range(last, -1, -1):
        if index < last:
            row = (c[index + 1] * slopes[index]) @ layers[index][0]
        if sizes.skips_into(index):
            row = row * SKIP_SCALE
            total = total + row[:, -sizes.encoded :]
            row = row[:, : -sizes.encoded]
        c[index] = row
    total = total + c[0]
    gradient = (total * jacobian).reshape(len(points), -1, 3).sum(axis=1)
    d_packed = np.zeros_like(packed)
    d_layers = layers_of(d_packed, sizes.widths)
    first_hat = np.tile(d_gradient, (1, 1 + 2 * sizes.octaves)) * jacobian
    hat, carried = first_hat, []
    for index in range(last + 1):
        x = np.concatenate([hat, first_hat], axis=1) * SKIP_SCALE if sizes.skips_into(index) else hat
        if index == last:
            d_layers[last][0][0] += x.sum(axis=0)
            break
        d_layers[index][0][...] += (c[index + 1] * slopes[index]).T @ x
        carried.append(x @ layers[index][0].T)
        hat = carried[index] * slopes[index]
    bar = np.concatenate([d_sdf, d_feature], axis=1)
    for index in range(last, -1, -1):
        d_layers[index][0][...] += bar.T @ inputs[index]
        d_layers[index][1][...] += bar.sum(axis=0)
        if index > 0:
            scale = SKIP_SCALE if sizes.skips_into(index) else 1.0
            s, width = slopes[index - 1], slopes[index - 1].shape[1]
            through = carried[index - 1] * c[index] * SOFTPLUS_BETA * s * (1.0 - s)
            bar = (bar @ layers[index][0])[:, :width] * scale * s + through
    return {"sdf": outputs[:, :1], "feature": outputs[:, 1:], "gradient": gradient, "d_packed": d_packed}


def _relu_backward(layer: tuple[Array, Array], d_layer: tuple[Array, Array], x: Array, d_y: Array) -> Array:
    """The cotangent of the input of a layer; adds those of its weights."""
    d_layer[0][...] += d_y.T @ x
    d_layer[1][...] += d_y.sum(axis=0)
    return d_y @ layer[0]


def color(
    sizes: ColorSizes, packed: Array, fixed: Array, normals: Array, features: Array, d_rgb: Array
) -> dict[str, Array]:
    """rgb, and from its cotangent d_normals, d_feature and d_packed."""
    layers, x = layers_of(packed, sizes.widths), [np.concatenate([fixed, normals, features], axis=1)]
    for matrix, bias in layers[:-1]:
        x.append(np.maximum(x[-1] @ matrix.T + bias, 0.0))
    rgb = 1.0 / (1.0 + np.exp(-(x[-1] @ layers[-1][0].T + layers[-1][1])))
    d_packed = np.zeros_like(packed)
    d_layers, d = layers_of(d_packed, sizes.widths), d_rgb * rgb * (1.0 - rgb)
    for index in range(len(layers) - 1, -1, -1):
        d = _relu_backward(layers[index], d_layers[index], x[index], d)
        if index > 0:
            d = d * (x[index] > 0.0)
    width = fixed.shape[1]
    return {"rgb": rgb, "d_normals": d[:, width : width + 3], "d_feature": d[:, width + 3 :], "d_packed": d_packed}


def nerf(
    sizes: NerfSizes, packed: Array, points: Array, directions: Array, d_density: Array, d_rgb: Array
) -> dict[str, Array]:
    """density, rgb, and d_packed from their cotangents."""
    layers, encoded = layers_of(packed, sizes.widths), encoding(points, sizes.octaves)
    trunk, x = sizes.trunk, [encoded]
    for index in range(trunk):
        h = np.maximum(x[index] @ layers[index][0].T + layers[index][1], 0.0)
        x.append(np.concatenate([encoded, h], axis=1) if index in sizes.skips else h)
    heads = x[trunk] @ layers[trunk][0].T + layers[trunk][1]
    x.append(np.concatenate([heads[:, :-1], encoding(directions, sizes.view_octaves)], axis=1))
    x.append(np.maximum(x[trunk + 1] @ layers[trunk + 1][0].T + layers[trunk + 1][1], 0.0))
    rgb = x[trunk + 2] @ layers[trunk + 2][0].T + layers[trunk + 2][1]
    d_packed = np.zeros_like(packed)
    d_layers = layers_of(d_packed, sizes.widths)
    d = _relu_backward(layers[trunk + 2], d_layers[trunk + 2], x[trunk + 2], d_rgb) * (x[trunk + 2] > 0.0)
    d = _relu_backward(layers[trunk + 1], d_layers[trunk + 1], x[trunk + 1], d)[:, : heads.shape[1] - 1]
    d = np.concatenate([d, d_density], axis=1)
    for index in range(trunk, -1, -1):
        d = _relu_backward(layers[index], d_layers[index], x[index], d)
        if index > 0:
            d = (d * (x[index] > 0.0))[:, -sizes.widths[2 * index - 1] :]
    return {"density": heads[:, -1:], "rgb": rgb, "d_packed": d_packed}

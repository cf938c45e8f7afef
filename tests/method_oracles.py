"""Hash grids, NeRF's rendering and splats in float64 NumPy, written from the equations; and random splats.

The multiresolution grid and the network behind it: arXiv 2201.05989. NeRF (arXiv 2003.08934), one ray at a time: eq. 2
(strata), eq. 3 (quadrature), section 5.2 (inverse transform of the coarse weights), eq. 6 (loss), with networks and
mask loss of oracles.py. Splats by the definition, one splat at a time.
"""

from __future__ import annotations

import itertools

import numpy as np
import oracles

from models.ops.gaussians.splat_project import camera_numbers

PRIMES = (1, 2654435761, 805459861)
BETA = 100.0


def row(cell, resolution, entries):
    """The row of a corner with whole coordinates `cell` [.., 3] in its level."""
    cell = cell.astype(np.uint64)
    if (resolution + 1) ** 3 <= entries:
        return cell @ np.array([1, resolution + 1, (resolution + 1) ** 2], np.uint64)
    hashed = np.zeros(cell.shape[:-1], np.uint64)
    for axis, prime in enumerate(PRIMES):
        hashed ^= cell[..., axis] * np.uint64(prime) & np.uint64(2**32 - 1)
    return hashed % np.uint64(entries)


def encode(points, table, sizes):
    """Features [P, 2 L] and their slopes [P, 2 L, 3]; zero in the levels that are not active."""
    count = len(points)
    features, slopes = np.zeros((count, 2 * sizes.levels)), np.zeros((count, 2 * sizes.levels, 3))
    start = 0
    for level, (resolution, entries) in enumerate(zip(sizes.resolutions, sizes.entries, strict=True)):
        columns = slice(2 * level, 2 * level + 2)
        place = (np.clip(points, -1, 1) + 1) / 2 * resolution
        lowest = np.minimum(np.floor(place), resolution - 1)
        for corner in itertools.product((0, 1), repeat=3) if level < sizes.active else ():
            inside = place - lowest
            steep = resolution / 2 * (6 * inside * (1 - inside) if level < sizes.smooth else np.ones_like(inside))
            inside = inside**2 * (3 - 2 * inside) if level < sizes.smooth else inside
            share = np.where(corner, inside, 1 - inside)
            value = table[start + row(lowest + corner, resolution, entries).astype(int)]
            features[:, columns] += share.prod(axis=1)[:, None] * value
            for axis in range(3):
                rise = np.where(np.abs(points[:, axis]) <= 1, steep[:, axis] * (2 * corner[axis] - 1), 0.0)
                others = np.delete(share, axis, axis=1).prod(axis=1)
                slopes[:, columns, axis] += (rise * others)[:, None] * value
        start += entries
    return features, slopes


def softplus(x):
    return np.logaddexp(0, BETA * x) / BETA


def sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


def field(points, table, layers, sizes):
    """Outputs [P, O] of the network on (point, features of all levels), and the gradient of the first one [P, 3]."""
    features, slopes = encode(points, table, sizes)
    inputs = np.concatenate([points, features], axis=1)
    jacobian = np.concatenate([np.broadcast_to(np.eye(3), (len(points), 3, 3)), slopes], axis=1)
    for index, (matrix, bias) in enumerate(layers):
        if index:
            jacobian = sigmoid(BETA * inputs)[:, :, None] * jacobian
            inputs = softplus(inputs)
        inputs, jacobian = inputs @ matrix.T + bias, np.einsum("oi,pia->poa", matrix, jacobian)
    return inputs, jacobian[:, 0]


def borders(near, far, count):
    """[count + 1] borders of even strata."""
    return np.array([near + (far - near) * i / count for i in range(count + 1)])


def coarse_depths(edges, jitter):
    """One depth in each stratum between the edges [N + 1]; jitter [N]."""
    return np.array([edges[i] + jitter[i] * (edges[i + 1] - edges[i]) for i in range(len(edges) - 1)])


def fine_depths(edges, weights, jitter):
    """The quantiles (i + jitter_i) / K of the histogram of weights [N], a little raised, over the edges [N + 1]."""
    mass = weights + 1e-5
    cdf = np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])
    return np.array([np.interp((i + jitter[i]) / len(jitter), cdf, edges) for i in range(len(jitter))])


def shade(params, conf, origin, direction, depths, far, behind):
    """One network along one ray with depths [N]: colour [3], opacity and weights [N]."""
    points = origin + depths[:, None] * direction
    raw, rgb = oracles.nerf_network(params, conf, points, np.broadcast_to(direction, points.shape))
    density, colors = oracles.softplus(raw[:, 0]), oracles.sigmoid(rgb)
    lengths = np.append(depths[1:], far) - depths
    optical, weights = 0.0, []
    for sigma, length in zip(density, lengths, strict=True):
        weights.append(np.exp(-optical) * (1.0 - np.exp(-sigma * length)))
        optical += sigma * length
    weights = np.array(weights)
    return weights @ colors + behind * np.exp(-optical), 1.0 - np.exp(-optical), weights


def render(params, conf, rays, counts, jitters, behind, fine=None):
    """All rays: a dict of arrays with a row per ray.

    `params` maps coarse and fine to parameters, `counts` is (n_samples, n_importance), `jitters` two arrays with a row
    per ray; `fine` [R, M] takes the place of the fine pass's depths.
    """
    rows = []
    behind = np.zeros(3) if behind is None else np.asarray(behind, np.float64)
    for i in range(len(rays.origins)):
        origin, direction = rays.origins[i].astype(np.float64), rays.directions[i].astype(np.float64)
        near, far = float(rays.near[i, 0]), float(rays.far[i, 0])
        edges = borders(near, far, counts[0])
        first = coarse_depths(edges, jitters[0][i])
        coarse_rgb, coarse_opacity, weights = shade(params["coarse"], conf, origin, direction, first, far, behind)
        closer = fine_depths(edges, weights, jitters[1][i])
        every = np.sort(np.append(first, closer)) if fine is None else fine[i]
        rgb, opacity, weights = shade(params["fine"], conf, origin, direction, every, far, behind)
        row = {"rgb": rgb, "opacity": [opacity], "weights": weights, "depths": every}
        rows.append(row | {"coarse_rgb": coarse_rgb, "coarse_opacity": [coarse_opacity]})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def losses(image, target, mask, mask_weight):
    """Terms of the training loss for what `render` returns."""

    def error(rgb):
        return float((((rgb - target) ** 2) * mask).sum() / ((mask.sum() + 1e-5) * 3.0))

    both = [oracles.cross_entropy(image[name], mask) for name in ("opacity", "coarse_opacity")]
    terms = {"fine": error(image["rgb"]), "coarse": error(image["coarse_rgb"]), "mask": float(np.mean(both))}
    return terms | {"total": terms["fine"] + terms["coarse"] + mask_weight * terms["mask"]}


BACKGROUND = np.array([0.1, 0.2, 0.3])
MARGIN, BLUR, CUT = 0.3, 0.3, 1 / 255


def camera(size: tuple[int, int], distance: float = 3.0) -> np.ndarray:
    """Numbers of a camera that looks along +z at the origin."""
    return camera_numbers(*_matrices(size, distance))


def _matrices(size: tuple[int, int], distance: float) -> tuple[np.ndarray, np.ndarray]:
    width, height = size
    pose = np.eye(4)
    turn = 0.3
    pose[:3, :3] = [[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]]
    pose[2, 3] = distance
    return pose, np.array([[1.1 * width, 0.4, 0.5 * width + 0.3], [0, 1.2 * width, 0.5 * height - 0.7], [0, 0, 1.0]])


def random_splats(
    count: int, seed: int, opacity: tuple[float, float] = (-3.0, 3.0), size: tuple[float, float] = (-3.5, -1.7)
) -> dict[str, np.ndarray]:
    """Around the origin; numbers as `Splats` has them, float64."""
    rng = np.random.default_rng(seed)
    return {
        "means": rng.normal(scale=0.5, size=(count, 3)),
        "quats": rng.normal(size=(count, 4)),
        "sizes": rng.uniform(*size, (count, 3)),
        "opacities": rng.uniform(*opacity, (count, 1)),
        "dc": rng.normal(size=(count, 3)),
        "rest": rng.normal(scale=0.2, size=(count, 15, 3)),
    }


def rotations64(quats: np.ndarray) -> np.ndarray:
    """[N, 3, 3], of quaternions of any length."""
    w, x, y, z = (quats / np.linalg.norm(quats, axis=1, keepdims=True)).T
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z)]
    rows += [1 - 2 * (x * x + z * z), 2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x)]
    return np.stack([*rows, 1 - 2 * (x * x + y * y)], axis=1).reshape(-1, 3, 3)


def _harmonics(d: np.ndarray) -> np.ndarray:
    """[N, 16]."""
    x, y, z = d.T
    a, b, c = 1.0925484305920792, 0.31539156525252005, 0.5462742152960396
    e, f, g, h, k = -0.5900435899266435, 2.890611442640554, -0.4570457994644658, 0.3731763325901154, 1.445305721320277
    one = 0.4886025119029199
    rows = [np.full_like(x, 0.28209479177387814), -one * y, one * z, -one * x, a * x * y, -a * y * z]
    rows += [b * (2 * z * z - x * x - y * y), -a * x * z, c * (x * x - y * y), e * y * (3 * x * x - y * y)]
    rows += [f * x * y * z, g * y * (4 * z * z - x * x - y * y), h * z * (2 * z * z - 3 * x * x - 3 * y * y)]
    rows += [g * x * (4 * z * z - x * x - y * y), k * z * (x * x - y * y), e * x * (x * x - 3 * y * y)]
    return np.stack(rows, axis=1)


def picture64(form: str, splats: dict[str, np.ndarray], size: tuple[int, int], cuts: bool = True) -> np.ndarray:
    """[H, W, 5]: colour over BACKGROUND, depth of the centres, opacity; `cuts` at 1 / 255 and 1e-4."""
    pose, k = _matrices(size, 3.0)
    width, height = size
    turn, placed = pose[:3, :3], splats["means"] @ pose[:3, :3].T + pose[:3, 3]
    direction = splats["means"] + turn.T @ pose[:3, 3]
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    coefficients = np.concatenate([splats["dc"][:, None], splats["rest"]], axis=1)
    rgb = np.maximum(np.einsum("nk,nkc->nc", _harmonics(direction), coefficients) + 0.5, 0.0)
    opacity = 1 / (1 + np.exp(-splats["opacities"][:, 0]))
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    sums, left, live = np.zeros((height, width, 4)), np.ones((height, width)), np.ones((height, width), bool)
    sigma_of = _surfel if form == "surfels" else _ellipsoid
    for n in np.argsort(placed[:, 2], kind="stable"):
        if placed[n, 2] <= 0.01:
            continue
        axes = turn @ (rotations64(splats["quats"])[n] * np.exp(splats["sizes"][n]))
        alpha = np.minimum(0.99, opacity[n] * np.exp(-sigma_of(placed[n], axes, k, size, x, y)))
        counts = live & ((alpha >= CUT) | (not cuts))
        stops = counts & (left * (1 - alpha) <= 1e-4) & cuts
        live &= ~stops
        weight = np.where(counts & ~stops, alpha * left, 0.0)
        sums += weight[..., None] * np.append(rgb[n], placed[n, 2])
        left = np.where(counts & ~stops, left * (1 - alpha), left)
    color = sums[..., :3] + left[..., None] * BACKGROUND
    return np.concatenate([color, sums[..., 3:], 1 - left[..., None]], axis=2)


def conics64(splats: dict[str, np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """[N, 3]: a, b, c of (a x^2 + c y^2) / 2 + b x y, of ellipsoids."""
    pose, k = _matrices(size, 3.0)
    placed = splats["means"] @ pose[:3, :3].T + pose[:3, 3]
    axes = pose[:3, :3] @ (rotations64(splats["quats"]) * np.exp(splats["sizes"])[:, None])
    conics = np.stack([_conic(p, turned, k, size) for p, turned in zip(placed, axes, strict=True)])
    return conics.reshape(-1, 4)[:, [0, 1, 3]]


def _conic(p: np.ndarray, axes: np.ndarray, k: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    (fx, skew, cx), (_, fy, cy) = k[0], k[1]
    z, (width, height) = p[2], size
    margin_x, margin_y = 0.5 * MARGIN * width / fx, 0.5 * MARGIN * height / fy
    slope_x = np.clip(p[0] / z, -cx / fx - margin_x, (width - cx) / fx + margin_x)
    slope_y = np.clip(p[1] / z, -cy / fy - margin_y, (height - cy) / fy + margin_y)
    jacobian = np.array([[fx, skew, -(fx * slope_x + skew * slope_y)], [0, fy, -fy * slope_y]]) / z
    flat = jacobian @ axes
    return np.linalg.inv(flat @ flat.T + BLUR * np.eye(2))


def _ellipsoid(p: np.ndarray, axes: np.ndarray, k: np.ndarray, size: tuple[int, int], x: np.ndarray, y: np.ndarray):
    conic = _conic(p, axes, k, size)
    u, v, _ = k @ p / p[2]
    return 0.5 * (conic[0, 0] * (u - x) ** 2 + conic[1, 1] * (v - y) ** 2) + conic[0, 1] * (u - x) * (v - y)


def _surfel(p: np.ndarray, axes: np.ndarray, k: np.ndarray, size: tuple[int, int], x: np.ndarray, y: np.ndarray):
    t = k @ np.stack([axes[:, 0], axes[:, 1], p], axis=1)
    cross = np.cross(x[..., None] * t[2] - t[0], y[..., None] * t[2] - t[1])
    u, v = cross[..., 0] / cross[..., 2], cross[..., 1] / cross[..., 2]
    plane = np.where(t[2, 0] * u + t[2, 1] * v + t[2, 2] > 0, u * u + v * v, np.inf)
    sign = np.array([1, 1, -1.0])
    centre = [(sign * t[i] * t[2]).sum() / (sign * t[2] ** 2).sum() for i in range(2)]
    blur = 2 * ((centre[0] - x) ** 2 + (centre[1] - y) ** 2)
    return 0.5 * np.minimum(plane, blur)

"""An independent statement of NeRF's rendering in float64 NumPy, written from the equations, one ray at a time.

NeRF (arXiv 2003.08934): eq. 2 (strata), eq. 3 (quadrature), section 5.2 (inverse transform of the coarse weights),
eq. 6 (loss). Networks, activations and the mask loss are those of oracles.py. Shares no code with models/.
"""

import numpy as np
import oracles


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

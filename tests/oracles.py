"""An independent statement of NeuS in float64 NumPy, written from the equations, one ray or layer at a time.

Sources: NeuS (arXiv 2106.10689, eqs. 3, 4, 10, 13 and section 3.4), NeRF (2003.08934, eqs. 3 to 5), NeRF++ (2010.07492,
section 4), IDR (2003.09852), weight normalisation (1602.07868, eq. 2), Adam (1412.6980, algorithm 1); constants and
conventions of the published code, https://github.com/Totoro97/NeuS/tree/6e0a230. Shares no code with models/.

`params` maps published parameter names to arrays, `conf` is any object with the published keys as attributes. Networks
take complex points too: their derivative along an axis is then exact, Im f(x + i h) / h for a tiny h.
P points, R rays, N sections.
"""

import math

import numpy as np

COMPLEX_STEP = 1e-30


# networks


def encode(x, octaves):
    """[P, D] -> [P, D (1 + 2 octaves)]: the input, then sines and cosines of each octave."""
    blocks = [x]
    for octave in range(octaves):
        blocks.append(np.sin(2.0**octave * x))
        blocks.append(np.cos(2.0**octave * x))
    return np.hstack(blocks)


def sigmoid(x):
    """1 / (1 + exp(-x)) without overflow."""
    return np.where(x >= 0, 1.0 / (1.0 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1.0 + np.exp(-np.abs(x))))


def softplus(x, beta=1.0):
    """log(1 + exp(beta x)) / beta; also of complex numbers near the real axis."""
    large = np.real(beta * x) > 0.0
    exponent = np.where(large, -beta * x, beta * x)
    return np.where(large, x, 0.0) + np.log1p(np.exp(exponent)) / beta


def relu(x):
    """max(x, 0), of complex numbers by their real part."""
    return np.where(np.real(x) > 0.0, x, 0.0)


def layer_matrix(params, layer):
    """The effective [out, in] matrix of a layer with or without weight normalisation."""
    if f"{layer}.weight" in params:
        return params[f"{layer}.weight"]
    direction, size = params[f"{layer}.weight_v"], params[f"{layer}.weight_g"]
    return np.stack([g * v / math.sqrt(float(v @ v)) for g, v in zip(size[:, 0], direction, strict=True)])


def dense(params, layer, x):
    """[P, in] -> [P, out]."""
    return x @ layer_matrix(params, layer).T + params[f"{layer}.bias"]


def sdf_network(params, conf, points):
    """Signed distance [P, 1] and feature [P, F]."""
    entry = encode(points * conf.scale, conf.multires)
    hidden = entry
    for index in range(conf.n_layers):
        if index in conf.skip_in:
            hidden = np.hstack([hidden, entry]) / math.sqrt(2.0)
        hidden = softplus(dense(params, f"lin{index}", hidden), 100.0)
    if conf.n_layers in conf.skip_in:
        hidden = np.hstack([hidden, entry]) / math.sqrt(2.0)
    output = dense(params, f"lin{conf.n_layers}", hidden)
    return output[:, :1] / conf.scale, output[:, 1:]


def sdf_gradient(params, conf, points):
    """d sdf / d point [P, 3], by complex steps along the axes."""
    columns = []
    for axis in np.eye(3):
        moved = points + 1j * COMPLEX_STEP * axis
        columns.append(np.imag(sdf_network(params, conf, moved)[0][:, 0]) / COMPLEX_STEP)
    return np.stack(columns, axis=1)


def color_network(params, conf, points, normals, views, features):
    """RGB [P, 3]."""
    seen = encode(views, conf.multires_view)
    pieces = {
        "idr": [points, seen, normals, features],
        "no_view_dir": [points, normals, features],
        "no_normal": [points, seen, features],
    }
    hidden = np.hstack(pieces[conf.mode])
    for index in range(conf.n_layers):
        hidden = relu(dense(params, f"lin{index}", hidden))
    output = dense(params, f"lin{conf.n_layers}", hidden)
    return sigmoid(output) if conf.squeeze_out else output


def nerf_network(params, conf, points, views):
    """Raw density [P, 1] and raw colour [P, 3]."""
    entry = encode(points, conf.multires)
    hidden = entry
    for index in range(conf.D):
        hidden = relu(dense(params, f"pts_linears.{index}", hidden))
        if index in conf.skips:
            hidden = np.hstack([entry, hidden])
    features = dense(params, "feature_linear", hidden)
    seen = relu(dense(params, "views_linears.0", np.hstack([features, encode(views, conf.multires_view)])))
    return dense(params, "alpha_linear", hidden), dense(params, "rgb_linear", seen)


def sharpness(params):
    """inv_s = exp(10 variance), kept in [1e-6, 1e6]."""
    return float(np.clip(np.exp(10.0 * float(params["variance"])), 1e-6, 1e6))


# where to sample


def inside_depths(near, far, count, jitter=None):
    """[R, count] even depths; jitter [R, 1] in [0, 1) moves a ray's depths together, by half a section at most."""
    shift = 0.0 if jitter is None else (jitter - 0.5) * 2.0 / count
    return near + (far - near) * np.linspace(0.0, 1.0, count) + shift


def outside_depths(far, count, inside_count, jitter=None):
    """[R, count] ascending depths beyond far, even in inverse distance; jitter [R, count] within the strata."""
    fraction = np.broadcast_to(np.linspace(1e-3, 1.0 - 1.0 / (count + 1.0), count), (len(far), count))
    if jitter is not None:
        middle = (fraction[:, 1:] + fraction[:, :-1]) / 2.0
        low = np.hstack([fraction[:, :1], middle])
        high = np.hstack([middle, fraction[:, -1:]])
        fraction = low + (high - low) * jitter
    return far / fraction[:, ::-1] + 1.0 / inside_count


def section_weights(alpha):
    """Weights along one ray [N]: opacity times the transmittance of the sections before."""
    through, weights = 1.0, []
    for opacity in alpha:
        weights.append(opacity * through)
        through *= 1.0 - opacity + 1e-7
    return np.array(weights)


def section_alpha(sdf, slope, length, inv_s):
    """Opacity of a section whose middle has `sdf` (eq. 13)."""
    entry = sigmoid((sdf - slope * length / 2.0) * inv_s)
    leave = sigmoid((sdf + slope * length / 2.0) * inv_s)
    return (entry - leave + 1e-5) / (entry + 1e-5)


def upsample_weights(depths, sdf, radius, inv_s):
    """Weights [N - 1] between the depths of one ray, all [N]."""
    alpha, previous = [], 0.0
    for i in range(len(depths) - 1):
        length = depths[i + 1] - depths[i]
        cos = (sdf[i + 1] - sdf[i]) / (length + 1e-5)
        slope = min(max(min(previous, cos), -1e3), 0.0) if min(radius[i], radius[i + 1]) < 1.0 else 0.0
        alpha.append(section_alpha((sdf[i] + sdf[i + 1]) / 2.0, slope, length, inv_s))
        previous = cos
    return section_weights(alpha)


def invert_cdf(edges, weights, count):
    """`count` quantiles of the histogram `weights` [N - 1] over the edges [N] of one ray."""
    mass = np.asarray(weights, np.float64) + 1e-5
    cdf = np.concatenate([[0.0], np.cumsum(mass / mass.sum())])
    depths = []
    for i in range(count):
        u = (i + 0.5) / count
        upper = int(np.sum(cdf <= u))
        below, above = max(upper - 1, 0), min(upper, len(cdf) - 1)
        width = cdf[above] - cdf[below]
        share = (u - cdf[below]) / (width if width >= 1e-5 else 1.0)
        depths.append(edges[below] + share * (edges[above] - edges[below]))
    return np.array(depths)


# rendering


def annealed_slope(cos, ratio):
    """The non-positive slope of the sdf along a ray."""
    return -((1.0 - ratio) * relu(0.5 - 0.5 * cos) + ratio * relu(-cos))


def inverted_sphere(points):
    """[P, 3] -> [P, 4]: (x / r, 1 / r), r at least 1."""
    radius = np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1.0)
    return np.hstack([points / radius, 1.0 / radius])


def sections(origin, direction, depths, last):
    """Lengths [N] and middle points [N, 3] of the sections that begin at the depths of one ray."""
    length = np.append(np.diff(depths), last)
    return length, origin + (depths + length / 2.0)[:, None] * direction


def background(params, conf, origin, direction, depths, last):
    """Opacity [M] and colour [M, 3] of the background model along one ray."""
    length, points = sections(origin, direction, depths, last)
    views = np.broadcast_to(direction, points.shape)
    density, rgb = nerf_network(params, conf, inverted_sphere(points), views)
    return 1.0 - np.exp(-softplus(density[:, 0]) * length), sigmoid(rgb)


def render_ray(params, model, origin, direction, depths, outside, ratio, behind):
    """One ray with given depths [N] inside and outside depths [n_outside] (None: no background model).

    `params` maps network -> parameters, `model` holds the confs of the networks and of the renderer. Returns a dict.
    """
    last = 2.0 / model.neus_renderer.n_samples
    length, points = sections(origin, direction, depths, last)
    views = np.broadcast_to(direction, points.shape)
    sdf, feature = sdf_network(params["sdf"], model.sdf_network, points)
    gradient = sdf_gradient(params["sdf"], model.sdf_network, points)
    rgb = color_network(params["color"], model.rendering_network, points, gradient, views, feature)
    inv_s = sharpness(params["sharpness"])
    slope = annealed_slope(gradient @ direction, ratio)
    alpha = np.clip(section_alpha(sdf[:, 0], slope, length, inv_s), 0.0, 1.0)
    radius = np.linalg.norm(points, axis=1)
    if outside is not None:
        every = np.sort(np.append(depths, outside))
        far_alpha, far_rgb = background(params["nerf"], model.nerf, origin, direction, every, last)
        inside = radius < 1.0
        alpha = np.append(np.where(inside, alpha, far_alpha[: len(depths)]), far_alpha[len(depths) :])
        rgb = np.vstack([np.where(inside[:, None], rgb, far_rgb[: len(depths)]), far_rgb[len(depths) :]])
    weights = section_weights(alpha)
    color = weights @ rgb
    if behind is not None:
        color = color + np.asarray(behind, np.float64) * (1.0 - weights.sum())
    return {
        "rgb": color,
        "opacity": weights.sum(keepdims=True),
        "weights": weights,
        "midpoints": depths + length / 2.0,
        "sdf_gradient": gradient,
        "cdf": sigmoid((sdf[:, 0] - slope * length / 2.0) * inv_s),
        "inside_sphere": (radius < 1.0).astype(float),
        "near_sphere": (radius < 1.2).astype(float),
    }


def render(params, model, rays, depths, outside, ratio=1.0, behind=None):
    """All rays: a dict of arrays with a row per ray."""
    rows = []
    for i, (origin, direction) in enumerate(zip(rays.origins, rays.directions, strict=True)):
        beyond = None if outside is None else outside[i]
        rows.append(render_ray(params, model, origin, direction, depths[i], beyond, ratio, behind))
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


# losses and optimiser


def losses(image, target, mask, igr_weight, mask_weight):
    """Terms of the training loss for what `render` returns."""
    color = float((np.abs(image["rgb"] - target) * mask).sum() / (mask.sum() + 1e-5))
    error = (np.linalg.norm(image["sdf_gradient"], axis=2) - 1.0) ** 2
    near = image["near_sphere"]
    eikonal = float((near * error).sum() / (near.sum() + 1e-5))
    silhouette = cross_entropy(image["opacity"], mask)
    total = color + igr_weight * eikonal + mask_weight * silhouette
    return {"total": total, "color": color, "eikonal": eikonal, "mask": silhouette}


def cross_entropy(probability, label):
    """Mean over rays of the binary cross-entropy of probabilities, which are kept in [0.001, 0.999]."""
    p = np.clip(probability, 1e-3, 1.0 - 1e-3)
    return float(np.mean(-label * np.log(p) - (1.0 - label) * np.log(1.0 - p)))


def psnr(rgb, target, mask):
    """dB over the rays in the mask."""
    return float(20.0 * np.log10(1.0 / np.sqrt((((rgb - target) ** 2) * mask).sum() / ((mask.sum() + 1e-5) * 3.0))))


def adam(start, gradients, rates):
    """The parameter after each step; epsilon is added after the bias correction."""
    value, first, second, path = np.array(start, np.float64), 0.0, 0.0, []
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        value = value - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        path.append(value)
    return path

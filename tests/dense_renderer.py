"""NeuS's rendering of given rays with given networks, for comparison with the oracle and golden files.

And small networks with weights nobody chose, and rays through them, for the tests of fields and renderer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from data.rays import Rays
from models.estimators import hierarchical as sampling
from models.estimators.coarse_to_fine import CoarseToFineEstimator
from models.estimators.conf import HierarchicalConfig
from models.estimators.hierarchical import HierarchicalEstimator
from models.fields.color import RenderingNetwork
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig, VarianceConfig
from models.fields.protocol import RadianceFields
from models.fields.radiance import NeRF, NerfField
from models.fields.sdf import SDFNetwork, SingleVarianceNetwork
from models.fields.state import export_state, import_state
from models.machine.backend import jt
from models.ops.upsample import rounds
from models.ops.volrend import annealed_cos, dense_offsets, interval_cdfs, ray_weights
from models.rendering.losses import LOSSES
from models.rendering.protocol import Rendered
from models.rendering.render import render_passes, render_surface
from models.structs import Objective, RenderOutput, Var
from models.training.gradient import losses_of


@dataclass(frozen=True)
class Networks:
    """Those of a NeuS; `nerf` is None without a background."""

    sdf: object
    color: object
    sharpness: object
    nerf: NeRF | None


@dataclass(frozen=True)
class Image:
    """R rays, N intervals of each inside the sphere, M in all."""

    rendering: RenderOutput
    depths: Var  # [R, N], where the intervals begin
    ratio: float

    rgb = property(lambda self: self.rendering.rgb)
    opacity = property(lambda self: self.rendering.opacity)
    inv_s = property(lambda self: self.rendering.inv_s)
    weights = property(lambda self: self.rendering.weights.reshape((self.depths.shape[0], -1)))
    midpoints = property(lambda self: self.rendering.samples.distances.reshape(self.depths.shape))
    sdf_gradient = property(lambda self: self.rendering.geometry.gradient.reshape((*self.depths.shape, 3)))
    inside_sphere = property(lambda self: self.rendering.samples.in_sphere.reshape(self.depths.shape))
    near_sphere = property(lambda self: self.rendering.samples.near_sphere.reshape(self.depths.shape))

    @property
    def cdf(self) -> Var:
        """[R, N], Phi_s at the start of each interval."""
        samples, geometry = self.rendering.samples, self.rendering.geometry
        cos = (samples.directions * geometry.gradient).sum(dim=1, keepdims=True)
        found = interval_cdfs(geometry.sdf, annealed_cos(cos, self.ratio), samples.deltas, self.inv_s)[0]
        return found.reshape(self.depths.shape)


class DenseRenderer:
    """The estimator and the screen of `models.rendering.render` for given networks."""

    def __init__(self, fields: Networks, conf: HierarchicalConfig) -> None:
        self.fields, self.conf = fields, conf
        self.estimator = HierarchicalEstimator(conf, fields.nerf if conf.n_outside > 0 else None)

    def render(self, rays: Rays, noise=None, ratio=1.0, background_rgb=None, depths: Var | None = None) -> Image:
        """Colours and all that the losses need."""
        sdf, inv_s = self.fields.sdf.bind(), self.fields.sharpness()
        depths = self.estimator.t_starts(rays, sdf.distance, noise) if depths is None else depths.detach()
        samples = self.estimator.samples_of(rays, depths, noise)
        geometry = sdf.evaluate(samples.positions)
        rendering = render_surface(self.fields.color, inv_s, samples, geometry, ratio, background_rgb)
        return Image(rendering, depths, ratio)

    def up_sample_rounds(self, rays: Rays) -> list[Var]:
        """The new depths of each round [R, K], then all depths sorted [R, N]."""
        depths = sampling.inside_depths(rays.near, rays.far, self.conf.n_samples, None)
        counts = sampling.round_counts(self.conf.n_importance, self.conf.up_sample_steps)
        distance = self.fields.sdf.bind().distance
        with jt.no_grad():
            return rounds(rays.origins, rays.directions, depths, None, distance, counts, sampling.ROUND_INV_S)


def training_losses(image: Image, target: Var, mask: Var, conf, names=("color", "eikonal", "mask")) -> dict[str, Var]:
    """The mean of each term of NeuS's loss, and `total`."""
    weights = {"color": 1.0, "eikonal": conf.igr_weight, "mask": conf.mask_weight}
    rendered = Rendered(image.rendering, None, target, mask, mask, None, 0)
    terms = {name: replace(LOSSES[name].term(rendered), weight=weights[name]) for name in names}
    return losses_of(Objective(terms, image), {})


def dense_weights(alpha: Var) -> Var:
    """Weights [R, N] of dense samples with opacities [R, N]."""
    rows, count = alpha.shape
    offsets = dense_offsets(rows, count)
    return ray_weights(alpha.reshape((-1, 1)), offsets, True)[0].reshape((rows, count))


@dataclass(frozen=True)
class TwoPassImage:
    """R rays, M depths of the fine pass."""

    rendering: RenderOutput

    rgb = property(lambda self: self.rendering.rgb)
    opacity = property(lambda self: self.rendering.opacity)
    coarse_rgb = property(lambda self: self.rendering.samples.coarse.rgb)
    coarse_opacity = property(lambda self: self.rendering.samples.coarse.opacity)
    weights = property(lambda self: self.rendering.weights.reshape((self.rgb.shape[0], -1)))
    depths = property(lambda self: self.rendering.samples.distances.reshape((self.rgb.shape[0], -1)))


class TwoPassRenderer:
    """The passes of a NeRF for given networks `coarse` and `fine`."""

    def __init__(self, coarse, fine, conf) -> None:
        self.fields = SimpleNamespace(coarse=coarse, fine=fine)
        self.estimator = CoarseToFineEstimator(conf)
        self.passes = RadianceFields(NerfField("nerf_fine", fine), NerfField("nerf_coarse", coarse))

    def render(self, rays, noise=None, background_rgb=None) -> TwoPassImage:
        """Both passes."""
        method = SimpleNamespace(fields=self.passes, estimator=self.estimator)
        return TwoPassImage(render_passes(method, rays, noise, background_rgb))


FEATURES = 5
SDF = SdfConfig(d_in=3, d_out=1 + FEATURES, d_hidden=24, n_layers=2, skip_in=(1,), multires=1)
COLOR = ColorConfig(d_feature=FEATURES, mode="idr", d_in=9, d_out=3, d_hidden=12, n_layers=1, multires_view=1)
NERF = NerfConfig(D=3, W=10, d_in=4, multires=1, multires_view=1, skips=(1,), use_viewdirs=True)
VARIANCE = VarianceConfig(init_val=0.3)


def params64(field):
    """The parameters of a field as the oracles take them."""
    return {name: np.asarray(value, np.float64) for name, value in export_state(field).items()}


def roughen(field, seed, size=0.1):
    """Add normal noise to all parameters: geometric initialisation leaves many at zero, where errors hide."""
    rng = np.random.default_rng(seed)
    state = export_state(field)
    import_state(field, {name: value + rng.normal(0.0, size, value.shape) for name, value in state.items()})
    return field


def distance_of(field, points):
    """Signed distances [P, 1] of a field at points [P, 3]."""
    return field.bind().distance(jt.array(points))


def tiny_fields(seed=0, with_background=False):
    """The four networks of the confs above (three without background)."""
    rng = np.random.default_rng(seed)
    return Networks(
        sdf=roughen(SDFNetwork(SDF, rng), seed + 1, 0.03),
        color=roughen(RenderingNetwork(COLOR, rng), seed + 2),
        sharpness=SingleVarianceNetwork(VARIANCE),
        nerf=roughen(NeRF(NERF, rng), seed + 3) if with_background else None,
    )


def tiny_renderer(seed=0, n_samples=8, n_importance=8, n_outside=0, up_sample_steps=2):
    """A renderer of tiny fields, with a background model where n_outside > 0."""
    conf = HierarchicalConfig(n_samples, n_importance, n_outside, up_sample_steps, perturb=1.0)
    return DenseRenderer(tiny_fields(seed, with_background=n_outside > 0), conf)


def oracle_model(renderer):
    """What `oracles.render` takes as `model`."""
    return SimpleNamespace(sdf_network=SDF, rendering_network=COLOR, nerf=NERF, neus_renderer=renderer.conf)


def oracle_params(renderer):
    """What `oracles.render` takes as `params`."""
    fields = vars(renderer.fields)
    return {name: params64(field) for name, field in fields.items() if field is not None}


def random_rays(count, seed=0):
    """Rays from a distance of about 2.5 towards points near the origin; near and far enclose the unit sphere."""
    rng = np.random.default_rng(seed)
    origins = rng.normal(size=(count, 3))
    origins *= rng.uniform(2.2, 2.8, (count, 1)) / np.linalg.norm(origins, axis=1, keepdims=True)
    directions = rng.normal(0.0, 0.4, (count, 3)) - origins
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    middle = -(origins * directions).sum(axis=1, keepdims=True)
    arrays = (origins, directions, middle - 1.0, middle + 1.0)
    return Rays(*(array.astype(np.float32) for array in arrays))

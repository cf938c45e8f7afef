"""NeuS's rendering of given rays with given networks, for comparison with the oracle and golden files."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from models.estimators import sampling
from models.estimators.coarse_to_fine import CoarseToFineEstimator
from models.estimators.conf import HierarchicalConfig
from models.estimators.hierarchical import HierarchicalEstimator
from models.estimators.pixels import RayVars
from models.fields.nerf import NeRF
from models.fields.radiance import NerfField
from models.machine.backend import jt
from models.ops.placing import rounds
from models.ops.volrend import annealed_cos, dense_offsets, interval_cdfs
from models.rendering import kernels
from models.rendering.losses import LOSSES, Rendered
from models.rendering.render import SurfaceFields, render_passes, render_surface
from models.structs import Objective, RayLayout, RenderOutput, Var
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

    def render(self, rays: RayVars, noise=None, ratio=1.0, background_rgb=None, depths: Var | None = None) -> Image:
        """Colours and all that the losses need."""
        fields = SurfaceFields(self.fields.sdf, self.fields.color, self.fields.sharpness).at_weights()
        depths = self.estimator.t_starts(rays, fields.sdf.distance, noise) if depths is None else depths.detach()
        rendering = render_surface(fields, self.estimator.samples_of(rays, depths, noise), ratio, background_rgb)
        return Image(rendering, depths, ratio)

    def up_sample_rounds(self, rays: RayVars) -> list[Var]:
        """The new depths of each round [R, K], then all depths sorted [R, N]."""
        depths = sampling.inside_depths(rays.near, rays.far, self.conf.n_samples, None)
        counts = sampling.round_counts(self.conf.n_importance, self.conf.up_sample_steps)
        distance = self.fields.sdf.at_weights().distance
        with jt.no_grad():
            return rounds(rays.origins, rays.directions, depths, None, distance, counts, sampling.FIRST_INV_S)


def training_losses(image: Image, target: Var, mask: Var, conf, names=("color", "eikonal", "mask")) -> dict[str, Var]:
    """The mean of each term of NeuS's loss, and `total`."""
    weights = {"eikonal": conf.igr_weight, "mask": conf.mask_weight}
    method = SimpleNamespace(loss_weight=lambda name: weights.get(name, 1.0))
    rendered = Rendered(image.rendering, None, target, mask, mask, method, 0)
    return losses_of(Objective({name: LOSSES[name](rendered) for name in names}, image), {})


def dense_weights(alpha: Var) -> Var:
    """Weights [R, N] of dense samples with opacities [R, N]."""
    rows, count = alpha.shape
    layout = RayLayout(dense_offsets(rows, count), count)
    return kernels.weights_from_alpha(alpha.reshape((-1, 1)), layout)[0].reshape((rows, count))


@dataclass(frozen=True)
class TwoPassImage:
    """R rays, M depths of the fine pass."""

    rendering: RenderOutput

    rgb = property(lambda self: self.rendering.rgb)
    opacity = property(lambda self: self.rendering.opacity)
    coarse_rgb = property(lambda self: self.rendering.coarse.rgb)
    coarse_opacity = property(lambda self: self.rendering.coarse.opacity)
    weights = property(lambda self: self.rendering.weights.reshape((self.rgb.shape[0], -1)))
    depths = property(lambda self: self.rendering.samples.distances.reshape((self.rgb.shape[0], -1)))


class TwoPassRenderer:
    """The passes of a NeRF for given networks `coarse` and `fine`."""

    def __init__(self, coarse, fine, conf) -> None:
        self.fields = SimpleNamespace(coarse=coarse, fine=fine)
        self.estimator = CoarseToFineEstimator(conf)
        self.coarse, self.field = NerfField("nerf_coarse", coarse), NerfField("nerf_fine", fine)

    def render(self, rays, noise=None, background_rgb=None) -> TwoPassImage:
        """Both passes."""
        return TwoPassImage(render_passes(self, rays, noise, background_rgb))

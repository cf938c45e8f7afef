"""Small networks with weights nobody chose, and rays through them, for the tests of fields and renderer."""

from types import SimpleNamespace

import numpy as np
from dense_renderer import DenseRenderer, Networks

from data.rays import Rays
from models.estimators.conf import HierarchicalConfig
from models.fields.color import RenderingNetwork
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig, VarianceConfig
from models.fields.nerf import NeRF
from models.fields.sdf import SDFNetwork
from models.fields.sharpness import SingleVarianceNetwork
from models.fields.state import export_state, import_state
from models.machine.backend import jt

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
    return field.at_weights().distance(jt.array(points))


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

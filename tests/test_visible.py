"""Pictures with the networks asked only where they can be seen, against pictures with all of them asked everywhere."""

import numpy as np
import pytest
from config_samples import changed
from dense_renderer import tiny_fields

from data.cameras import camera_rays, image_pixels
from models.estimators.conf import HierarchicalConfig
from models.estimators.hierarchical import HierarchicalEstimator
from models.fields.protocol import SurfaceFields
from models.fields.state import export_state, import_state
from models.methods.neus import NeuSModel
from models.methods.sparing import meets_sphere
from models.plan import TrainingPlan

GREY = np.float32([0.2, 0.5, 0.9])
FIELDS = ("rgb", "normal", "distance", "opacity")
HAZE = 3e-3  # 24 empty sections of 1e-5, and the sampling of a rough background


def camera(width=16, focal=14.0):
    """Rays of a camera at distance 3 whose picture holds the unit sphere, and as much beside it."""
    c2w = np.eye(4)
    c2w[:3, 3] = (0.0, 0.0, -3.0)
    half = (width - 1) / 2
    return camera_rays(image_pixels(width, width), np.array([[focal, 0, half], [0, focal, half], [0, 0, 1]]), c2w)


class Counted:
    """A network that counts the points it is asked at; the last input of a background is a bool [P] of these."""

    def __init__(self, network):
        self.network, self.points = network, 0

    def __call__(self, points, *others):
        is_some = bool(others) and others[-1].dtype == "bool"
        self.points += int(others[-1].numpy().sum()) if is_some else points.shape[0]
        return self.network(points, *others)

    def bind(self):
        return self

    evaluate = __call__

    def distance(self, points):
        self.points += points.shape[0]
        return self.network.bind().distance(points)


def renderers(n_outside, farther=0.0, variance=0.3):
    """Both views of a renderer of counted networks; `farther` is added to the signed distance."""
    fields = tiny_fields(1, with_background=n_outside > 0)
    state = export_state(fields.sdf)
    state["lin2.bias"][0] += farther
    import_state(fields.sdf, state)
    import_state(fields.sharpness, {"variance": np.float32(variance)})
    counted = SurfaceFields(Counted(fields.sdf), Counted(fields.color), fields.sharpness)
    conf = HierarchicalConfig(16, 8, n_outside, 2, perturb=1.0)
    estimator = HierarchicalEstimator(conf, Counted(fields.nerf) if fields.nerf else None)
    model = NeuSModel(counted, estimator, changed(train={"anneal_end": 0.0}).train, TrainingPlan())
    return model, model.view_fully, model.view


def asked(model, view, rays, behind):
    """The picture, and the points that each network was asked at for it."""
    networks = [network for network in (model.fields.sdf, model.fields.color, model.estimator.nerf) if network]
    for network in networks:
        network.points = 0
    model.estimator.behind = lambda _: behind
    seen = view(rays, 0)
    return seen, [network.points for network in networks]


@pytest.mark.parametrize("n_outside", [0, 4])
@pytest.mark.parametrize("variance", [0.1, 0.6], ids=["soft", "sharp"])
def test_rays_show_the_same_object_and_the_background_beside_it(n_outside, variance):
    rays = camera()
    model, whole, sparing = renderers(n_outside, variance=variance)
    full, seen = (asked(model, view, rays, GREY)[0] for view in (whole, sparing))
    inside, hit = meets_sphere(rays), seen.opacity[:, 0] > 0
    assert 0.2 < inside.mean() < 0.9 and hit.any() and not hit[~inside].any()
    for name in FIELDS:
        np.testing.assert_allclose(getattr(seen, name)[hit], getattr(full, name)[hit], atol=1e-6, err_msg=name)
    np.testing.assert_allclose(seen.opacity, full.opacity, atol=HAZE)
    if n_outside:
        np.testing.assert_allclose(seen.rgb[~inside], full.rgb[~inside], atol=1e-6)
    else:
        empty = ~inside & (np.abs(seen.rgb - GREY).max(axis=1) < 1e-6)
        assert empty.mean() > 0.8 * (~inside).mean()


def test_a_region_without_an_object_costs_only_the_distances_that_tell():
    """Before, every ray cost all networks at all of its sections; a floater beyond the sphere is seen as before."""
    rays, count = camera(), len(camera())
    model, whole, sparing = renderers(0, farther=30.0)
    full, before = asked(model, whole, rays, GREY)
    seen, after = asked(model, sparing, rays, GREY)
    assert before == [count * (16 + 4 + 24), count * 24] and after == [count * 16, 0]
    np.testing.assert_array_equal(seen.rgb, np.tile(GREY, (count, 1)))
    np.testing.assert_allclose(full.rgb, seen.rgb, atol=HAZE)
    assert not seen.opacity.any() and not seen.normal.any() and not seen.distance.any()
    model, whole, sparing = renderers(0, farther=-30.0)
    full, seen = (asked(model, view, rays, None)[0] for view in (whole, sparing))
    for name in FIELDS:
        np.testing.assert_allclose(getattr(seen, name), getattr(full, name), atol=1e-6, err_msg=name)

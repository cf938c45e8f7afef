"""The curvature loss: its value on known surfaces, its slopes, and which rays count."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from test_fast_neus import CONF, TINY
from test_fast_parts import assert_learns, field_of
from trainings import trainer_of

from data.prepare.load import load_scene
from models.conf import load_config
from models.fields.protocol import BoundDistance
from models.machine.backend import jt
from models.rendering.losses import LOSSES, curvature
from models.structs import FieldOutput

RADIUS, STEP, WEIGHT = 0.5, 0.02, 1e-3
RAYS, PER_RAY = 12, 6


def ball(sign=1.0):
    """A field: the distance from a sphere, or from its inside."""

    def evaluate(points):
        away = points.sqr().sum(dim=1, keepdims=True).sqrt()
        return FieldOutput((away - RADIUS) * sign, away, points / away * sign)

    return SimpleNamespace(evaluate=evaluate)


def wall(points):
    """The distance from the plane z = RADIUS."""
    return FieldOutput(points[:, 2:] - RADIUS, points, jt.zeros(points.shape) + jt.array(np.float32([0, 0, 1])))


def term_of(field, lateral=0.2, outwards=1.0, step=0, weights=None):
    """The loss of rays that go down the z axis beside it, with samples around z = RADIUS or the sphere; seen from the
    origin with outwards = -1.
    """
    rng = np.random.default_rng(5)
    across = rng.uniform(-lateral, lateral, (RAYS, 1, 2))
    middle = np.sqrt(RADIUS**2 - (across**2).sum(axis=2)) if lateral else np.full((RAYS, 1), RADIUS)
    depths = middle + (np.arange(PER_RAY) - 2.5 + rng.uniform(-0.4, 0.4, (RAYS, 1))) * STEP * -outwards
    places = np.concatenate([np.broadcast_to(across, (RAYS, PER_RAY, 2)), depths[:, :, None]], axis=2).reshape(-1, 3)
    places = np.vstack([places, rng.uniform(-0.9, 0.9, (5, 3))]).astype(np.float32)  # and points of no ray
    if weights is None:
        near = np.exp(-(((np.arange(PER_RAY) - 2.4) / 0.7) ** 2))
        weights = np.tile(near / near.sum() * 0.99, RAYS)
    weights = np.concatenate([weights, np.zeros(5)]).astype(np.float32)[:, None]
    directions = np.zeros_like(places)
    directions[:, 2] = -outwards
    positions = jt.array(places)
    offsets = jt.array(np.arange(RAYS + 1, dtype=np.int32) * PER_RAY)
    samples = SimpleNamespace(positions=positions, directions=jt.array(directions), offsets=offsets)
    seen = SimpleNamespace(samples=samples, geometry=field.evaluate(positions), region_weights=jt.array(weights))
    batch, generator = SimpleNamespace(step_size=STEP), lambda: np.random.default_rng((0, step))
    sdf = BoundDistance(None, None, lambda points: field.evaluate(points).sdf)
    rendered = SimpleNamespace(rendering=seen, batch=batch, sdf=sdf, generator=generator)
    at = places[: RAYS * PER_RAY].reshape(RAYS, PER_RAY, 3)[:, 2]
    return curvature(rendered), np.linalg.norm(at.astype(np.float64), axis=1)


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["ball", "hollow"])
@pytest.mark.parametrize("step", [0, 7])
def test_of_a_sphere_it_is_one_over_its_radius_whatever_the_tangent(sign, step):
    term, radii = term_of(ball(sign), outwards=sign, step=step)
    exact = 2 * (np.sqrt(radii**2 + STEP**2) - radii) / STEP**2  # of the level set through each sample
    assert term.count.item() == RAYS
    assert term.total.item() / RAYS == pytest.approx(exact.mean(), rel=2e-3)
    assert term.total.item() / RAYS == pytest.approx(1 / RADIUS, rel=0.05)


def test_of_a_plane_and_of_what_holds_no_surface_it_is_zero():
    term, _ = term_of(SimpleNamespace(evaluate=wall), lateral=0.0)
    assert term.count.item() == RAYS and term.total.item() / RAYS < 1e-3 / RADIUS
    weights = np.full(RAYS * PER_RAY, 0.99 / PER_RAY)
    weights[: 3 * PER_RAY] = 0.01  # transparent
    weights[2::PER_RAY] *= 1.1
    assert term_of(ball(), weights=weights)[0].count.item() == RAYS - 3
    nothing, _ = term_of(ball(), weights=np.zeros(RAYS * PER_RAY))
    assert nothing.total.item() == nothing.count.item() == nothing.mean().item() == 0.0
    # In a part of a batch without samples there is no row to read, not even one whose value does not count.
    empty = SimpleNamespace(samples=SimpleNamespace(positions=jt.zeros((0, 3))))
    part = SimpleNamespace(rendering=empty, batch=SimpleNamespace(step_size=[STEP]))
    assert curvature(part).mean().item() == 0.0


def test_table_and_network_learn_from_it():
    module = field_of(bias=RADIUS, d_hidden=256)
    rng = np.random.default_rng(6)
    weight = module.lin0.weight.numpy().copy()
    weight[:, 3:] = rng.normal(0, 0.02, weight[:, 3:].shape)  # of the features: zero at first
    module.lin0.weight.update(jt.array(weight))
    module.table.update(jt.array(rng.normal(0, 0.02, module.table.shape).astype(np.float32)))
    for value in (module.table, module.lin0.weight):
        value.start_grad()

    def loss():
        term, _ = term_of(module.bind())
        assert term.count.item() > RAYS / 2
        return term.total

    assert_learns(module, loss, 1e-4)


@pytest.mark.parametrize(("is_reduced", "weight"), [("false", WEIGHT), ("true", 0.0)])
def test_it_is_not_used_with_tf32_whose_rounding_exceeds_it(is_reduced, weight):
    settings = [f"train.tf32={is_reduced}", f"train.curvature_weight={WEIGHT}"]
    conf = load_config(CONF, "demo", [*TINY, *settings])
    model = trainer_of(conf, load_scene(conf.dataset)).model
    assert model.weights["curvature"].value == weight
    assert LOSSES["curvature"].factor("curvature", 7, replace(model.train, end_iter=10)) == pytest.approx(0.3)

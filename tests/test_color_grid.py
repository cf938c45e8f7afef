"""The colour with a grid of its own: its value and gradients against float64, and its place in conf and training."""

from __future__ import annotations

from functools import partial

import method_oracles as grid_oracle
import numpy as np
import oracles
import pytest
from dense_renderer import params64, roughen
from forms import FORMS, in_form
from gradcheck import assert_grad_close, central_differences, some_entries
from test_fast_neus import CONF, TINY

from models.conf import load_config, network_differences
from models.fields.color import ColorGrid
from models.fields.conf import ColorConfig, ColorGridConfig
from models.fields.state import export_state
from models.machine.backend import jt
from models.methods.registry import build_model

GRID = ColorGridConfig(levels=3, coarsest=4, finest=16, log2_rows=7)
NETWORK = ColorConfig(4, "idr", d_in=9, d_out=3, d_hidden=16, n_layers=2, weight_norm=False, multires_view=1)
POINTS = 40


def inputs():
    """Points, normals, view directions, features; float64."""
    rng = np.random.default_rng(2)
    views = rng.normal(size=(POINTS, 3))
    views /= np.linalg.norm(views, axis=1, keepdims=True)
    drawn = rng.uniform(-1.1, 1.1, (POINTS, 3)), rng.normal(size=(POINTS, 3)), views, rng.normal(size=(POINTS, 4))
    return [value.astype(np.float32).astype(np.float64) for value in drawn]


def expected(params, points, normals, views, features):
    """RGB [P, 3] in float64."""
    own, _ = grid_oracle.encode(points, params["table"], GRID.sizes)
    network = GRID.network(NETWORK)
    return oracles.color_network(params, network, points, normals, views, np.hstack([features, own]))


@pytest.mark.parametrize("form", FORMS)
def test_colours_and_all_gradients_are_those_of_float64(form):
    color, given = roughen(ColorGrid(GRID, NETWORK, np.random.default_rng(0)), 1, 0.3), inputs()
    params, cotangent = params64(color), np.random.default_rng(3).normal(size=(POINTS, 3))
    points, normals, views, features = (jt.array(value.astype(np.float32)) for value in given)
    with in_form(form):
        rgb = color(points, normals, views, features)
        learned = [color.table, color.lin0.weight, normals, features]
        found = [value.numpy() for value in jt.grad((rgb * jt.array(cotangent.astype(np.float32))).sum(), learned)]
    np.testing.assert_allclose(rgb.numpy(), expected(params, *given), atol=2e-6)

    def total(value, name=None, index=None):
        own = {**params, name: value} if name else params
        return (expected(own, *(value if at == index else one for at, one in enumerate(given))) * cotangent).sum()

    cases = [(name, partial(total, name=name), params[name]) for name in ("table", "lin0.weight")]
    cases += [(name, partial(total, index=at), given[at]) for name, at in (("normals", 1), ("features", 3))]
    for (name, function, value), gradient in zip(cases, found, strict=True):
        entries = some_entries(value, 60)
        assert_grad_close(gradient.reshape(-1)[entries], central_differences(function, value, entries), name=name)


def test_the_conf_counts_its_parameters_and_tells_another_colour_apart():
    conf = load_config(CONF, "demo", TINY)
    color = build_model(conf.model, conf.train, np.random.default_rng(0)).networks["color_network_fine"]
    counted = sum(value.size for value in export_state(color).values())
    without = load_config(CONF, "demo", [*TINY, "model.color=rendering_network"]).model
    assert conf.model.parameters - without.parameters == counted - without.rendering_network.parameters > 0
    told = "model.color: rendering_network in the checkpoint, color_grid in the conf"
    assert network_differences(without, conf.model) == [told]

"""Estimators and fields that no recipe combines, by confs of tests/confs: each trains, resumes and has a mesh.

One field is from outside the package: three planes of features and a sphere (EG3D, arXiv 2112.07945).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from runs import ROOT, SHORT, contents, saved
from trainings import run_conf, stopped_after

from models.config.strict import limits
from models.fields.registry import SURFACES, FieldKind
from models.machine.backend import jt
from models.methods.conf import load_config
from models.methods.registry import build_model
from models.structs import FieldOutput, Var

pytestmark = pytest.mark.slow

CONFS = ROOT / "tests" / "confs"
RADIANCE = ("nerf_in_cells", "density_grid_coarse_to_fine")
NAMES = ("mlp_in_cells", "grid_hierarchical", "tri_plane_hierarchical")
SCENE = (f"dataset.data_dir={ROOT}/data/demo", 'dataset.test_dir=""', 'dataset.reference_mesh=""')
IN_CELLS = ("model.packed.samples=1024", "model.packed.cells=16", "model.packed.first_step=0.1")
IN_CELLS += ("model.packed.last_step=0.05", "train.batch_size=64")
PLANES = ((0, 1), (1, 2), (2, 0))  # the axes of each


@dataclass(frozen=True)
class TriPlaneConfig:
    """The block `model.tri_plane`."""

    resolution: int = limits(16, at_least=2)
    features: int = limits(7, at_least=1)
    radius: float = limits(0.5, above=0)

    @property
    def parameters(self) -> int:
        return 1 + 3 * self.resolution**2 * (1 + self.features)

    def check(self) -> None:
        """Every value within its limits will do."""


class TriPlane(jt.nn.Module):
    """The distance from a sphere plus the sum of what three planes hold; a `DistanceField`."""

    def __init__(self, conf: TriPlaneConfig, rng: np.random.Generator) -> None:
        super().__init__()
        self.conf = conf
        shape = (3 * conf.resolution**2, 1 + conf.features)
        self.planes = jt.array(rng.normal(0.0, 1e-2, shape).astype(np.float32))
        self.radius = jt.array(np.float32([conf.radius]))

    def at_weights(self):
        return self

    def distance(self, points: Var) -> Var:
        return self.evaluate(points).sdf

    def evaluate(self, points: Var) -> FieldOutput:
        length = (points.sqr().sum(dim=1, keepdims=True) + 1e-12).sqrt()
        values, slopes = jt.zeros((points.shape[0], self.planes.shape[1])), [jt.zeros((points.shape[0], 1))] * 3
        for number, (first, second) in enumerate(PLANES):
            found, along = self._plane(number, points[:, first], points[:, second])
            values = values + found
            slopes[first], slopes[second] = slopes[first] + along[0], slopes[second] + along[1]
        gradient = points / length + jt.concat(slopes, dim=1)
        return FieldOutput(length - self.radius + values[:, :1], values[:, 1:], gradient)

    def _plane(self, number: int, u: Var, v: Var) -> tuple[Var, tuple[Var, Var]]:
        """Bilinear interpolation of the values [P, 1 + F], and the slopes of the first along both axes [P, 1]."""
        count = self.conf.resolution
        scale = 0.5 * (count - 1)
        x, y = ((axis + 1.0) * scale for axis in (u, v))
        left, low = (jt.minimum(jt.maximum(value.floor(), 0.0), count - 2.0).int32() for value in (x, y))
        along, up = (x - left.float32()).unsqueeze(1), (y - low.float32()).unsqueeze(1)
        row = number * count * count + left * count + low
        corners = [self.planes[row + step] for step in (0, count, 1, count + 1)]
        values = (corners[0] * (1 - along) + corners[1] * along) * (1 - up)
        values = values + (corners[2] * (1 - along) + corners[3] * along) * up
        by_u = (corners[1] - corners[0]) * (1 - up) + (corners[3] - corners[2]) * up
        by_v = (corners[2] - corners[0]) * (1 - along) + (corners[3] - corners[1]) * along
        return values, (by_u[:, :1] * scale, by_v[:, :1] * scale)


@pytest.fixture(scope="module", autouse=True)
def tri_plane():
    """Everything in this file happens with the field registered."""
    SURFACES["tri_plane"] = FieldKind(TriPlaneConfig, TriPlane)
    yield
    del SURFACES["tri_plane"]


def settings_of(name):
    """Six short steps on the bundled scene."""
    cells = IN_CELLS if name.endswith("in_cells") else ("train.batch_size=32",)
    block = "radiance" if name == "nerf_in_cells" else "packed"
    return (*SHORT, *SCENE, *(setting.replace("packed", block) for setting in cells))


def run_mixed(name, folder, *arguments):
    """The command line on a conf of tests/confs, into a folder; returns the exit status."""
    return run_conf(CONFS / f"{name}.conf", folder, "--case", "mixed", *arguments, settings=settings_of(name))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function that gives the folder of six steps by a conf, made on first use."""

    @cache
    def folder_of(name):
        folder = tmp_path_factory.mktemp(name)
        assert run_mixed(name, folder) == 0
        return folder

    return folder_of


@pytest.mark.parametrize("name", [*NAMES, *RADIANCE])
def test_all_networks_are_trained_and_show_images(name, trained):
    first, last = (saved(trained(name), step).tensors for step in (3, 6))
    own = {"nerf_in_cells": {"nerf_fine"}, "density_grid_coarse_to_fine": {"density_grid", "color_network"}}
    assert own.get(name, {"sdf_network_fine", "variance_network_fine", "color_network_fine"}) <= set(last)
    if name in NAMES:
        assert ("planes" in last["sdf_network_fine"]) == name.startswith("tri_plane")
        assert ("table" in last["sdf_network_fine"]) == name.startswith("grid")
        assert run_mixed(name, trained(name), "--mode", "validate_mesh", "--resolution", "24") == 0
        assert (trained(name) / "meshes/00000006.ply").stat().st_size > 1000
    for network, named in last.items():
        assert any(np.any(first[network][key] != value) for key, value in named.items()), network
    assert run_mixed(name, trained(name), "--mode", "validate_image", "--image", "1") == 0
    conf = load_config(CONFS / f"{name}.conf", "mixed", settings_of(name))
    networks = build_model(conf.model, conf.train, np.random.default_rng(0)).networks
    fixed = (network for name, network in networks.items() if name != "exposure")  # sized by the photographs
    assert conf.model.parameters == sum(value.numel() for network in fixed for value in network.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_the_uninterrupted_one(name, trained, tmp_path):
    folder = stopped_after(3, trained(name), tmp_path / "resumed")
    assert run_mixed(name, folder, "--is_continue") == 0
    if not name.startswith("tri_plane"):
        assert contents(saved(folder, 6)) == contents(saved(trained(name), 6))
    ours, theirs = (saved(place, 6).tensors["sdf_network_fine"] for place in (folder, trained(name)))
    for key, value in theirs.items():  # Jittor's own gather, which the tri-plane uses, adds up in any order
        np.testing.assert_allclose(ours[key], value, rtol=1e-3, atol=1e-5)

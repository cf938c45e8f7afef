"""Estimators and fields that no recipe combines, by confs of tests/confs: each trains, resumes and has a mesh."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from runs import ROOT, SHORT, contents, saved
from trainings import run_conf, stopped_after
from tri_plane import TriPlane, TriPlaneConfig

from models.fields.registry import SURFACES, FieldKind
from models.methods.conf import load_config
from models.methods.registry import build_model

pytestmark = pytest.mark.slow

CONFS = ROOT / "tests" / "confs"
RADIANCE = ("nerf_in_cells", "density_grid_coarse_to_fine")
NAMES = ("mlp_in_cells", "grid_hierarchical", "tri_plane_hierarchical")
SCENE = (f"dataset.data_dir={ROOT}/data/demo", 'dataset.test_dir=""', 'dataset.reference_mesh=""')
IN_CELLS = ("model.packed.samples=1024", "model.packed.cells=16", "model.packed.first_step=0.1")
IN_CELLS += ("model.packed.last_step=0.05", "train.batch_size=64")


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

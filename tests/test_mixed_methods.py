"""Estimators and fields that no recipe combines, by confs of tests/confs: each trains, resumes and has a mesh."""

from __future__ import annotations

import numpy as np
import pytest
from runs import ROOT, SHORT, contents, saved
from trainings import run_conf, stopped_after

pytestmark = pytest.mark.slow

CONFS = ROOT / "tests" / "confs"
RADIANCE = ("nerf_in_cells", "density_grid_coarse_to_fine")
NAMES = ("mlp_in_cells", "grid_hierarchical")
SCENE = (f"dataset.data_dir={ROOT}/data/demo", 'dataset.test_dir=""', 'dataset.reference_mesh=""')
IN_CELLS = ("model.packed.samples=1024", "model.packed.cells=16", "model.packed.first_step=0.1")
IN_CELLS += ("model.packed.last_step=0.05", "train.batch_size=64")


def settings_of(name):
    """Six short steps on the bundled scene."""
    cells = IN_CELLS if name.endswith("in_cells") else ("train.batch_size=32",)
    block = "radiance" if name == "nerf_in_cells" else "packed"
    return (*SHORT, *SCENE, *(setting.replace("packed", block) for setting in cells))


def run_mixed(name, folder, *arguments):
    """The command line on a conf of tests/confs, into a folder; returns the exit status."""
    return run_conf(CONFS / f"{name}.conf", folder, "--case", "mixed", *arguments, settings=settings_of(name))


@pytest.mark.parametrize("name", [*NAMES, *RADIANCE])
def test_all_networks_are_trained_resume_and_show_images_and_meshes(name, tmp_path):
    whole = tmp_path / "whole"
    assert run_mixed(name, whole) == 0
    first, last = (saved(whole, step).tensors for step in (3, 6))
    own = {"nerf_in_cells": {"nerf_fine"}, "density_grid_coarse_to_fine": {"density_grid", "color_network"}}
    assert own.get(name, {"sdf_network_fine", "variance_network_fine", "color_network_fine"}) <= set(last)
    for network, named in last.items():
        assert any(np.any(first[network][key] != value) for key, value in named.items()), network
    assert run_mixed(name, whole, "--mode", "validate_image", "--image", "1") == 0
    if name in NAMES:
        assert ("table" in last["sdf_network_fine"]) == name.startswith("grid")
        assert run_mixed(name, whole, "--mode", "validate_mesh", "--resolution", "24") == 0
        assert (whole / "meshes/00000006.ply").stat().st_size > 1000
        resumed = stopped_after(3, whole, tmp_path / "resumed")
        assert run_mixed(name, resumed, "--is_continue") == 0
        assert contents(saved(resumed, 6)) == contents(saved(whole, 6))

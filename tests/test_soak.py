"""A run that goes on does not grow: Jittor's counts after 20 steps and after ten times as many are the same."""

import pytest

from benchmarks.bm_soak import soak

pytestmark = pytest.mark.slow

KINDS = {"plain": (), "averaged": ("train.ema_decay=0.99",), "split": ("train.ray_chunk=5",)}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_counts_stay_the_same_with_pictures_meshes_and_checkpoints_on_the_way(settings, tmp_path):
    early, late = soak(tmp_path, 200, 20, *settings)
    assert (early.step, late.step) == (20, 200)
    assert early.counts == late.counts
    assert early.counts["hold_vars"] > 0
    for kind, least in (("meshes/*.ply", 1), ("validations_fine/*.png", 10), ("checkpoints/*.safetensors", 10)):
        assert len(list(tmp_path.glob(kind))) >= least, kind

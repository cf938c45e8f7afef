"""Three hundred steps of confs/fast.conf on two small scenes, on each instruction set: none is skipped, both learn."""

import re
import shutil

import numpy as np
import pytest
import runs

import exp_runner
from models.checkpoints.ours import load_checkpoint

pytestmark = pytest.mark.slow

STEPS = 300
SILENT = ("train.val_freq=0", "train.val_mesh_freq=0", "train.save_freq=0", f"train.end_iter={STEPS}")


@pytest.mark.parametrize(
    ("has_masks", "settings", "least"),
    [(True, (), 22.0), (False, ("train.adam_beta_2=0.8",), 18.0)],
    ids=["masks", "no masks, second moments that become subnormal"],
)
def test_no_step_is_skipped_and_the_scene_is_learnt(has_masks, settings, least, tmp_path):
    scene = tmp_path / "scene"
    shutil.copytree(runs.ROOT / "data" / "demo", scene)
    if not has_masks:
        shutil.rmtree(scene / "mask")
    values = (f"dataset.data_dir={scene}", f"general.base_exp_dir={tmp_path}", *SILENT, *settings)
    flags = [flag for value in values for flag in ("--set", value)]
    assert exp_runner.main(["--conf", str(runs.ROOT / "confs" / "fast.conf"), "--case", "short", *flags]) == 0
    (checkpoint,) = tmp_path.rglob("ckpt_*.safetensors")
    log = next(tmp_path.rglob("train.log")).read_text()
    assert not re.search(r"step \d+ skipped", log)
    saved = load_checkpoint(checkpoint)
    assert (saved.step, saved.adam_steps) == (STEPS, STEPS)
    tiny = np.finfo(np.float32).tiny
    for named in saved.moments.values():
        for name, values in named.items():
            assert not np.any((values != 0) & (np.abs(values) < tiny)), name
    assert float(re.findall(r"PSNR ([\d.]+)", log)[-1]) > least

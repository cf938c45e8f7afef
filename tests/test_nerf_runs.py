"""A radiance field through the command line: training, resuming, pictures, meshes, and what is refused."""

import re
import subprocess

import numpy as np
import pytest
import trimesh
from config_samples import CONFS
from runs import ROOT, SHORT, command, contents, run, saved
from trainings import assert_every_parameter_moves, stopped_after

from data.io.images import read_image
from models.conf import load_config
from models.config.strict import ConfigError

SIZES = ("model.nerf_renderer.n_samples=8", "model.nerf_renderer.n_importance=8")
SCENE = (f"dataset.data_dir={ROOT}/data/demo",)
NERF = ("model.type=nerf", "model.nerf.d_in=3", *SIZES)
SETTINGS = (*SHORT, *NERF)


def run_nerf(folder, *arguments, settings=SETTINGS):
    """`run` with a radiance field."""
    return run(folder, *arguments, settings=settings)


def refused(capsys, folder, words, *arguments, settings=SETTINGS):
    """The sentence of a run that exits with status 2."""
    assert run_nerf(folder, *arguments, settings=settings) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    return error


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Six steps with a checkpoint after three, and a picture at the end."""
    folder = tmp_path_factory.mktemp("nerf")
    assert run_nerf(folder, settings=(*SHORT[:3], "train.val_freq=6", SHORT[4], "train.report_freq=2", *NERF)) == 0
    return folder


@pytest.mark.cli
def test_every_parameter_moves_and_a_new_process_goes_on_bit_for_bit(trained, tmp_path):
    assert list(saved(trained, 6).tensors) == ["nerf_coarse", "nerf_fine"]
    assert_every_parameter_moves(trained)
    lines = [line for line in (trained / "logs/train.log").read_text().splitlines() if " INFO step " in line]
    assert len(lines) == 3 and all("coarse " in line and "inv_s" not in line for line in lines)
    folder = stopped_after(3, trained, tmp_path / "resumed")
    done = subprocess.run(command(folder, "--is_continue", settings=SETTINGS), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(saved(folder, 6)) == contents(saved(trained, 6))


def middle_density(folder, capsys):
    """A level that the density crosses, from the sentence of a mesh without a surface."""
    error = refused(capsys, folder, "never crosses -25", "--mode", "validate_mesh", "--resolution", "16")
    low, high = re.search(r"minus the density ranges from (\S+) to (\S+) inside", error).groups()
    return -(float(low) + float(high)) / 2


@pytest.mark.slow
def test_pictures_and_meshes_are_made(trained, capsys):
    assert run_nerf(trained, "--mode", "validate_image", "--resolution_level", "5") == 0
    assert read_image(trained / "validations_fine/00000006_0_0.png").shape == (120, 40, 3)
    distance = np.load(trained / "distances/00000006_0_0.npy")
    assert 2.0 < distance[20, 20] < 4.0  # the unit sphere's span before a camera at distance 3
    level = ("--mcube_threshold", str(middle_density(trained, capsys)))
    assert run_nerf(trained, "--mode", "validate_mesh", "--resolution", "24", *level) == 0
    mesh = trimesh.load(trained / "meshes/00000006.ply")
    assert len(mesh.faces) > 0 and np.abs(mesh.vertices - (4.0, -7.0, 1.5)).max() < 2.5 * 1.1  # the world frame


@pytest.mark.slow
def test_a_checkpoint_of_the_other_kind_is_refused_in_one_sentence(trained, tmp_path, capsys):
    refused(capsys, trained, "model.type: nerf in the checkpoint, neus in the conf", "--is_continue", settings=SHORT)
    source = ("--checkpoint", str(ROOT / "tests/golden/official_wmask_000040.pth"))
    refused(capsys, tmp_path, "nerf_coarse: the network is missing", "--mode", "validate_image", *source)


CANNOT_WORK = [
    ("model.type=nerv", "model.type = 'nerv': must be one of neus, nerf"),
    ("model.nerf.d_in=4", "model.nerf.d_in = 4: must be 3 where model.type = nerf"),
    ("model.nerf.skips=[3]", "model.nerf.skips = [3]: must not be negative nor the last layer, 3"),
    ("model.nerf_renderer.near=2 model.nerf_renderer.far=2", "model.nerf_renderer.far = 2: must be above near = 2"),
]


@pytest.mark.parametrize(("override", "words"), CANNOT_WORK)
def test_a_value_that_cannot_work_is_refused_by_its_key(override, words):
    with pytest.raises(ConfigError) as refused:
        load_config(CONFS / "nerf_synthetic.conf", "x", ("model.nerf.D=4", "model.nerf.skips=[1]", *override.split()))
    assert words in str(refused.value) and "\n" not in str(refused.value)

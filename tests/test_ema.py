"""Averaged weights: what they are, that results use them, and that they are saved and resumed bit for bit."""

import subprocess

import numpy as np
import pytest
from runs import SHORT, command, contents, run, saved

from data.io.images import read_image

pytestmark = pytest.mark.slow

DECAY = "train.ema_decay=0.9"
EVERY_STEP = (*SHORT[:2], "train.save_freq=1", *SHORT[3:])


def averages(checkpoint):
    """The averaged weights by name, as float64."""
    return {f"{n}.{k}": np.float64(a) for n, named in checkpoint.ema.items() for k, a in named.items()}


def weights(checkpoint):
    """The weights by name, as float64."""
    return {f"{n}.{k}": np.float64(a) for n, named in checkpoint.tensors.items() for k, a in named.items()}


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """Six steps with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("averaged")
    assert run(folder, settings=(*EVERY_STEP, DECAY)) == 0
    return folder


def test_the_average_follows_its_definition(averaged):
    average = averages(saved(averaged, 1))
    for step in range(2, 7):
        checkpoint = saved(averaged, step)
        kept = min(0.9, (1 + step) / (10 + step))
        average = {name: kept * average[name] + (1 - kept) * value for name, value in weights(checkpoint).items()}
        for name, value in averages(checkpoint).items():
            np.testing.assert_allclose(value, average[name], rtol=1e-5, atol=1e-7, err_msg=f"step {step}, {name}")
    assert any(np.any(value != weights(checkpoint)[name]) for name, value in average.items())


def test_training_is_the_same_with_and_without(averaged, tmp_path):
    assert run(tmp_path) == 0
    assert contents(saved(tmp_path, 6)) == contents(saved(averaged, 6))
    assert saved(tmp_path, 6).ema == {}


def test_a_new_process_goes_on_with_the_average_bit_for_bit(averaged, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    name = "ckpt_000003.safetensors"
    (tmp_path / "checkpoints" / name).write_bytes((averaged / "checkpoints" / name).read_bytes())
    program = command(tmp_path, "--is_continue", settings=(*SHORT, DECAY))
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours, theirs = saved(tmp_path, 6), saved(averaged, 6)
    assert contents(ours) == contents(theirs)
    for name, value in averages(theirs).items():
        assert np.array_equal(averages(ours)[name], value), name


def test_pictures_are_made_with_the_average(averaged):
    picture = averaged / "validations_fine/00000006_0_0.png"
    shown = []
    for settings in ((DECAY,), ()):
        assert run(averaged, "--mode", "validate_image", "--resolution_level", "10", settings=settings) == 0
        shown.append(read_image(picture))
    assert np.any(shown[0] != shown[1])


@pytest.mark.parametrize("value", ["1", "-0.1", "nan", "often"])
def test_a_decay_that_averages_nothing_is_refused_by_name(value, tmp_path, capsys):
    assert run(tmp_path / "new", settings=(f"train.ema_decay={value}",)) == 2
    error = capsys.readouterr().err
    assert "train.ema_decay" in error and error.count("\n") == 1 and not (tmp_path / "new").exists()

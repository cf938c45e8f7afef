"""Averaged weights: what they are, that results use them, and that they are saved and resumed bit for bit."""

import subprocess

import numpy as np
import pytest
from runs import SHORT, command, contents, everything, run, saved
from trainings import stopped_after

from data.io.images import read_image

pytestmark = pytest.mark.slow

DECAY = "train.ema_decay=0.9"
EVERY_STEP = (*SHORT[:2], "train.save_freq=1", *SHORT[3:])


def values_of(named):
    """Weights by name, as float64."""
    return {f"{n}.{k}": np.float64(a) for n, arrays in named.items() for k, a in arrays.items()}


@pytest.fixture(scope="module")
def averaged(tmp_path_factory):
    """Six steps with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("averaged")
    assert run(folder, settings=(*EVERY_STEP, DECAY)) == 0
    return folder


def test_the_average_follows_its_definition_and_changes_no_training(averaged, tmp_path):
    average = values_of(saved(averaged, 1).ema)
    for step in range(2, 7):
        checkpoint = saved(averaged, step)
        kept, weights = min(0.9, (1 + step) / (10 + step)), values_of(checkpoint.tensors)
        average = {name: kept * average[name] + (1 - kept) * value for name, value in weights.items()}
        for name, value in values_of(checkpoint.ema).items():
            np.testing.assert_allclose(value, average[name], rtol=1e-5, atol=1e-7, err_msg=f"step {step}, {name}")
    assert any(np.any(value != weights[name]) for name, value in average.items())
    assert run(tmp_path) == 0
    assert contents(saved(tmp_path, 6)) == contents(saved(averaged, 6)) and saved(tmp_path, 6).ema == {}


def test_a_new_process_goes_on_with_the_average_bit_for_bit(averaged, tmp_path):
    stopped_after(3, averaged, tmp_path)
    subprocess.run(command(tmp_path, "--is_continue", settings=(*SHORT, DECAY)), check=True)
    assert everything(saved(tmp_path, 6)) == everything(saved(averaged, 6))


def test_pictures_are_made_with_the_average(averaged):
    shown = []
    for settings in ((DECAY,), ()):
        assert run(averaged, "--mode", "validate_image", "--resolution_level", "10", settings=settings) == 0
        shown.append(read_image(averaged / "validations_fine/00000006_0_0.png"))
    assert np.any(shown[0] != shown[1])


def test_a_decay_that_averages_nothing_is_refused_by_name(tmp_path, capsys):
    assert run(tmp_path / "new", settings=("train.ema_decay=1",)) == 2
    assert "train.ema_decay" in capsys.readouterr().err and not (tmp_path / "new").exists()

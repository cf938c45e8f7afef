"""Environment variables are set for Jittor during its import only, so that child processes do not inherit them."""

import os

import pytest
from cuda_machines import planned, toolkit

from models.machine import device, environment, jittor_import
from models.machine.cuda import home as cuda_home
from models.machine.cuda.choice import HOME_PREFIX
from models.machine.cuda.home import Home


@pytest.fixture
def on_a_gpu(monkeypatch, tmp_path):
    """A process for a simulated GPU; returns its home."""
    home = Home(tmp_path / f"{HOME_PREFIX}0123456789ab", planned(toolkit()))
    monkeypatch.setattr(jittor_import, "choice", device.Choice("cuda", gpu=1))
    monkeypatch.setattr(jittor_import, "cuda_ready", lambda gpu: cuda_home.Ready(home))
    monkeypatch.setattr(jittor_import, "_trial", lambda home: "")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in ("CUDA_VISIBLE_DEVICES", "cache_name", "cc_flags"):
        os.environ.pop(name, None)
    return home


def wishes():
    """The environment, but for what stays in it."""
    return {name: value for name, value in os.environ.items() if name not in environment.STAYING}


def test_what_jittor_is_told_is_forgotten_when_it_is_loaded(on_a_gpu, monkeypatch):
    monkeypatch.setenv("cc_flags", "-DMINE")
    monkeypatch.setenv("use_cuda", "0")
    given = wishes()
    with environment.jittor_environment(on_a_gpu, 1):
        told = dict(os.environ)
        os.environ["cuda_arch"] = "90"  # as Jittor does
    assert told["nvcc_path"] == on_a_gpu.nvcc and told["cache_name"].endswith("-cuda-0123456789ab")
    assert told["CUDA_VISIBLE_DEVICES"] == "1" and "-DMINE" not in told["cc_flags"] and "use_cuda" not in told
    assert wishes() == given

"""Confs that exceed memory are rejected at the start, with a value that fits; later failures keep all steps."""

import importlib
import re
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from config_samples import changed
from runs import SHORT, run, saved
from trainings import fail_after

import exp_runner
from data.errors import UserError, is_allocation_failure
from models.fields.state import named_parameters
from models.machine import jittor_import
from models.machine.cuda import home as cuda_home
from models.machine.device import Choice
from models.methods.confs import NeRFConfig
from models.methods.registry import build_model
from models.ops.source import CSRC, CUDA
from models.results import capacity

GB = 10**9


@pytest.mark.parametrize("kind", ["neus", "nerf", "background"])
def test_parameters_are_counted_as_the_networks_have_them(kind):
    conf = changed(nerf={"d_in": 4 if kind == "background" else 3, "use_viewdirs": True, "multires": 3}).model
    conf = changed(neus_renderer={"n_outside": 4}).model if kind == "background" else conf
    conf = conf if kind != "nerf" else NeRFConfig(nerf=conf.nerf)
    networks = build_model(conf, changed().train, np.random.default_rng(0)).networks
    built = sum(value.numel() for network in networks.values() for value in named_parameters(network).values())
    assert conf.parameters == built


def test_networks_are_refused_where_neither_memory_nor_a_card_holds_them(monkeypatch):
    model = changed().model
    needed = 7 * 4 * model.parameters
    monkeypatch.setattr(capacity, "available_bytes", lambda: needed - 1)
    for gpu, words in ((0, "is free: lower"), (needed - 1, "the GPU has")):
        monkeypatch.setattr(jittor_import, "gpu_bytes", lambda gpu=gpu: gpu)
        with pytest.raises(UserError, match=words):
            capacity.require_networks(model)
    monkeypatch.setattr(jittor_import, "gpu_bytes", lambda: needed)
    capacity.require_networks(model)


def test_the_memory_of_a_card_is_known_before_it_is_used(monkeypatch):
    home = SimpleNamespace(plan=SimpleNamespace(gpu=SimpleNamespace(memory=80 * GB)))
    for device, found, expected in (("auto", home, 80 * GB), ("auto", None, 0), ("cpu", home, 0)):
        monkeypatch.setattr(jittor_import, "choice", Choice(device))
        monkeypatch.setattr(jittor_import, "cuda_ready", lambda gpu, found=found: cuda_home.Ready(found))
        assert jittor_import.gpu_bytes() == expected


def test_a_mesh_is_refused_with_the_largest_one_that_fits(monkeypatch):
    monkeypatch.setattr(capacity, "available_bytes", lambda: 23 * GB)
    capacity.require_mesh(2048, "--resolution")
    monkeypatch.setattr(capacity, "available_bytes", lambda: GB)
    capacity.require_mesh(1863, "--resolution")
    with pytest.raises(UserError, match=r"--resolution: .* 1 GB is free: at most 1863 points per side fit"):
        capacity.require_mesh(1864, "--resolution")


@pytest.mark.slow
def test_what_exceeds_memory_is_refused_before_a_checkpoint_is_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(capacity, "available_bytes", lambda: GB)
    assert run(tmp_path / "none", "--mode", "validate_mesh", "--resolution", "2048") == 2
    error = capsys.readouterr().err
    assert "--resolution 2048" in error and "1.21 GB" in error and not (tmp_path / "none").exists()
    monkeypatch.setattr(capacity, "available_bytes", lambda: 3 * GB)
    for mode in ("train", "plan"):
        assert run(tmp_path / "none", "--mode", mode, settings=(*SHORT, "train.batch_size=10000000")) == 2
        assert "train.batch_size = 10000000: " in (error := capsys.readouterr().err) and "lower it to" in error


MEMORY_TEXTS = ["Unable to allocate 3 GiB", "std::bad_alloc", "CUDA out of memory", "can't start new thread"]
MEMORY_TEXTS += ["GPU memory is overflow, please reduce your batch_size or data size!\nTotal: 200MB Used: 197MB"]
MEMORY_TEXTS += ["x.so: failed to map segment from shared object", "Failed reason:Resource temporarily unavailable"]


def test_what_the_libraries_and_cublas_say_of_memory_is_understood():
    text = (CSRC / CUDA / "device.h").read_text(encoding="utf-8")
    (word,) = re.findall(r'CUBLAS_STATUS_ALLOC_FAILED\) return "(.*)"', text)
    for said in (*MEMORY_TEXTS, f"{word}: status 3"):
        assert is_allocation_failure(RuntimeError(said)) and not is_allocation_failure(OSError("no"))
    assert not is_allocation_failure(RuntimeError(f"Run cmd failed:g++. This might be: {MEMORY_TEXTS[0]}"))


@pytest.mark.slow
def test_where_memory_runs_out_in_a_step_the_steps_before_are_saved(tmp_path, monkeypatch, capsys):
    fail_after(monkeypatch, 2, "std::bad_alloc")
    assert run(tmp_path, settings=(*SHORT, "train.ray_chunk=2")) == 2
    told = capsys.readouterr().err
    assert "more slowly with 1 " in told and "Traceback" not in told
    assert told.splitlines()[-1].startswith("error: memory ran out after step 2; its checkpoint is written")
    assert saved(tmp_path, 2).step == 2


@pytest.mark.slow
def test_memory_that_runs_out_elsewhere_is_one_sentence(tmp_path, monkeypatch, capsys):
    importlib.import_module("models.commands.modes")  # its modules would keep the function if loaded meanwhile
    with monkeypatch.context() as patch:
        patch.setattr("models.commands.functions.read_conf", Mock(side_effect=MemoryError()))
        assert exp_runner.main([]) == 2
    assert capsys.readouterr().err.startswith("error: memory ran out: ")
    monkeypatch.setattr("models.commands.runner.Runner.__init__", Mock(side_effect=OSError("Cannot allocate memory")))
    assert run(tmp_path / "new", settings=SHORT) == 2  # nothing stays
    assert "memory ran out" in capsys.readouterr().err and not (tmp_path / "new").exists()

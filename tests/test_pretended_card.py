"""The simulated driver, queried like a real one."""

import os
import shutil
import subprocess

import pytest
from cuda_machines import toolkit

from benchmarks.pretend import build
from models.machine.cuda import driver as drivers
from models.machine.cuda.conclude import conclude
from models.machine.cuda.facts import Facts


@pytest.mark.cli
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize(("newest", "capability"), [(13000, 90), (12040, 75)])
def test_a_pretended_driver_is_asked_as_a_real_one(monkeypatch, tmp_path, newest, capability):
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", build.SOURCES / "driver.c", "-o", library], check=True)
    monkeypatch.setattr(drivers, "is_installed", lambda: True)
    answers = {"PRETEND_DRIVER": str(newest), "PRETEND_CAPABILITY": str(capability)}
    found = drivers.ask(os.environ | {"LD_LIBRARY_PATH": str(tmp_path)} | answers)
    assert found.cuda == (newest // 1000, newest % 1000 // 10) and found.problem == ""
    assert [(gpu.name, gpu.capability, gpu.memory) for gpu in found.gpus] == [("pretend card", capability, 2**34)]
    plan = conclude(Facts(found, (toolkit((newest // 1000, 0)),))).plan
    assert plan.codes == (capability,)

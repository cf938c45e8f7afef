"""Toolkits and pip packages are found in all usual places, independent of other files there."""

import os
from pathlib import Path

import cuda_machines
import pytest
from cuda_machines import CODES_12, bare_machine, planned, write_headers, write_nvcc, write_toolkit

from models.machine.cuda import home as homes
from models.machine.cuda.facts import LIBRARIES


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """See `bare_machine`."""
    return bare_machine(tmp_path, monkeypatch)


def test_a_whole_toolkit_is_found_once_for_all_its_names(machine, tmp_path):
    root = write_toolkit(tmp_path / "local" / "cuda-12.4", "12.4", CODES_12)
    (tmp_path / "local" / "cuda").symlink_to(root)
    (found,) = machine(CUDA_HOME=str(root), PATH=str(root / "bin"))
    assert found.nvcc == str(root / "bin" / "nvcc") and found.release == (12, 4) and found.codes == CODES_12
    assert found.missing == () and set(found.libraries) == set(LIBRARIES)


def test_the_newest_version_comes_first_but_for_those_the_user_names(machine, tmp_path):
    for release in ("9.2", "12.4", "12.10", "13.0"):
        write_toolkit(tmp_path / "local" / f"cuda-{release}", release)
    own = write_toolkit(tmp_path / "own", "12.1")
    assert [found.release for found in machine()] == [(13, 0), (12, 10), (12, 4), (9, 2)]
    assert machine(CUDA_HOME=str(own))[0].release == (12, 1)
    assert machine(nvcc_path=str(own / "bin" / "nvcc"))[0].release == (12, 1)
    assert machine(PATH=str(own / "bin"))[0].release == (12, 1)


def test_pips_packages_of_cuda_13_are_a_toolkit(machine, tmp_path):
    cuda_machines.write_wheels_13(tmp_path / "site")
    (found,) = machine(tmp_path / "site")
    assert found.release == (13, 0) and found.missing == ()
    assert found.libraries["cublas"].endswith("nvidia/cu13/lib/libcublas.so.13")


def test_a_toolkit_is_completed_by_packages_of_its_own_version_only(machine, tmp_path):
    root = tmp_path / "local" / "cuda-12.4"
    write_nvcc(root / "bin" / "nvcc", "12.4", CODES_12)
    write_headers(root / "include", "cuda_runtime.h", major=12)
    cuda_machines.write_wheels_13(tmp_path / "thirteen", with_nvcc=False)
    (found,) = machine(tmp_path / "thirteen")
    assert "libcublas.so" in found.missing and "libcudart.so" in found.missing
    cuda_machines.write_wheels_12(tmp_path / "twelve")
    (found,) = machine(tmp_path / "thirteen", tmp_path / "twelve")
    assert found.missing == () and found.libraries["cublas"].endswith("libcublas.so.12")
    assert "thirteen" not in "".join([*found.libraries.values(), *found.headers.values()])


# the home


def test_a_home_of_ours_is_no_toolkit_however_it_is_named(machine, tmp_path):
    root = write_toolkit(tmp_path / "local" / "cuda", "12.4", CODES_12)
    (toolkit,) = machine()
    ours = homes.prepare(planned(toolkit), tmp_path / "cache", "g++")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(ours.nvcc)
    ways = [{"nvcc_path": ours.nvcc}, {"CUDA_HOME": str(ours.folder)}, {"CUDA_ROOT": str(ours.folder)}]
    paths = [f"{ours.folder / 'bin'}{os.pathsep}{root / 'bin'}", str(tmp_path / "bin")]
    for way in (*ways, *({"PATH": path} for path in paths)):
        assert machine(**way) == [toolkit], way
    mine = write_toolkit(tmp_path / "cuda-home-of-mine", "12.6", CODES_12)
    assert machine(CUDA_HOME=str(mine))[0].release == (12, 6)


def test_odd_files_of_a_toolkit_are_passed_over(machine, tmp_path):
    root = write_toolkit(tmp_path / "local" / "cuda-13.0")
    (root / "lib64" / "libcudart.so.bak").touch()
    (root / "lib64" / "libcublas.so.orig-13").touch()
    (root / "lib64" / "libcublas.so.9").mkdir()
    (root / "lib64" / "libcurand.so.1").symlink_to("libcurand.so.1")
    (root / "include" / "gone.h").symlink_to("nowhere.h")
    (root / "include" / "cuda_runtime_api.h").unlink()
    (found,) = machine(CUDA_PATH=str(root))
    assert found.missing == () and all(Path(file).is_file() for file in found.libraries.values())
    (tmp_path / "made").mkdir()
    homes.fill(planned(found), tmp_path / "made", "g++")
    assert (tmp_path / "made" / "bin" / "nvcc").is_file()

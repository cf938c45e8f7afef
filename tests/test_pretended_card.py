"""The pretended driver, asked as a real one, and the pretended runtime, which counts what waits for the card."""

import ctypes
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
    assert [(card.name, card.capability, card.memory) for card in found.cards] == [("pretend card", capability, 2**34)]
    plan = conclude(Facts(found, (toolkit((newest // 1000, 0)),))).plan
    assert plan.codes == (capability,)


# Of CUDA's header what runtime.c asks for.
HEADER = """#include <stddef.h>
typedef enum { cudaSuccess, cudaErrorMemoryAllocation = 2 } cudaError_t;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault = 4 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMultiProcessorCount, cudaDevAttrMaxThreadsPerBlock, cudaDevAttrWarpSize,
    cudaDevAttrMaxSharedMemoryPerBlock, cudaDevAttrMaxSharedMemoryPerBlockOptin };
typedef void *cudaStream_t, *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *);
typedef struct { unsigned x, y, z; } dim3;
struct cudaFuncAttributes { int ptxVersion, binaryVersion, maxThreadsPerBlock; };
struct cudaDeviceProp { char name[256]; size_t totalGlobalMem;
    int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock; };
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """The pretended runtime, against that header; memory of the card, pinned and other memory of the host."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "cuda_runtime_api.h").write_text(HEADER)
    library = folder / "runtime.so"
    command = ["gcc", "-w", "-shared", "-fPIC", f"-I{folder}", build.SOURCES / "runtime.c", "-o", library]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.card, loaded.pinned = ctypes.c_void_p(), ctypes.c_void_p()
    loaded.cudaMalloc(ctypes.byref(loaded.card), ctypes.c_size_t(64))
    loaded.cudaMallocHost(ctypes.byref(loaded.pinned), ctypes.c_size_t(64))
    loaded.other = ctypes.create_string_buffer(64)
    return loaded

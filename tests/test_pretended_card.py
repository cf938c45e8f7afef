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


def test_what_the_pretended_runtime_defines_is_not_generated_too():
    written = set(build.DEFINED.findall((build.SOURCES / "runtime.c").read_text(encoding="utf-8")))
    assert {"cudaMalloc", "cudaMemcpy", "cudaGetDeviceProperties", "cudaLaunchKernel"} <= written


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
TO = {"to card": 1, "to host": 2, "default": 4}


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


def _launch(runtime):
    runtime.__cudaLaunchKernel(*[None] * 2)


def _waits(runtime, call, size=8):
    """How often one call waits behind a kernel, and the bytes that it reads."""
    _launch(runtime)
    before = runtime.pretend_waits(), runtime.pretend_bytes_read()
    call(ctypes.c_size_t(size))
    found = runtime.pretend_waits() - before[0], runtime.pretend_bytes_read() - before[1]
    runtime.cudaDeviceSynchronize()
    return found


@pytest.mark.cli
def test_what_waits_for_the_card_is_counted_where_there_is_something_to_wait_for(runtime):
    card, pinned, other = runtime.card, runtime.pinned, runtime.other
    copy, launch = runtime.cudaMemcpy, runtime.cudaMemcpyAsync
    assert _waits(runtime, lambda size: copy(other, card, size, TO["to host"])) == (1, 8)
    assert _waits(runtime, lambda size: copy(pinned, card, size, TO["default"])) == (1, 8)
    assert _waits(runtime, lambda size: copy(card, pinned, size, TO["to card"])) == (1, 0)
    assert _waits(runtime, lambda size: copy(card, card, size, TO["default"])) == (0, 0)
    assert _waits(runtime, lambda size: launch(other, card, size, TO["to host"], None)) == (1, 8)
    assert _waits(runtime, lambda size: launch(pinned, card, size, TO["to host"], None)) == (0, 8)
    assert _waits(runtime, lambda size: launch(card, other, size, TO["to card"], None)) == (0, 0)
    assert _waits(runtime, lambda size: runtime.cudaMemset(card, 0, size)) == (0, 0)
    for name in ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"):
        assert _waits(runtime, lambda size, name=name: getattr(runtime, name)(None)) == (1, 0)


@pytest.mark.cli
def test_a_second_wait_has_nothing_to_wait_for(runtime):
    def twice(size):
        runtime.cudaDeviceSynchronize()
        runtime.cudaMemcpy(runtime.other, runtime.card, size, TO["to host"])

    assert _waits(runtime, twice) == (1, 8)


@pytest.mark.cli
def test_memory_that_is_given_back_is_waited_for(runtime):
    more = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(more), ctypes.c_size_t(64))
    assert _waits(runtime, lambda size: runtime.cudaFree(more)) == (1, 0)


def test_other_libraries_are_no_reason_to_compile_anew_but_are_made_anew(monkeypatch, tmp_path):
    made, sources, compiled = build.Pretended(tmp_path / "made"), tmp_path / "sources", []
    sources.mkdir(), made.driver.mkdir(parents=True)
    monkeypatch.setattr(build, "_library", lambda name, folder: compiled.append(name))
    monkeypatch.setattr(build, "_compile", lambda library, *given: compiled.append(library.name))
    monkeypatch.setattr(build, "SOURCES", sources)
    (sources / "runtime.c").write_text("int one;")
    before = build.key(toolkit(), (80, 90))
    build.renew(made)
    count = len(compiled)
    build.renew(made)
    assert count == 5 and len(compiled) == count
    (sources / "runtime.c").write_text("int two;")
    build.renew(made)
    assert len(compiled) == 2 * count and build.key(toolkit(), (80, 90)) == before
    assert len({before, build.key(toolkit(), (75, 90)), build.key(toolkit((13, 1)), (80, 90))}) == 3

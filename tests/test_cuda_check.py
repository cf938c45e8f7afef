"""What `make cuda-check` says, with and without what it needs; and a pretended driver, asked as a real one."""

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest
from cuda_machines import toolkit

from benchmarks import cuda_check, cuda_check_toolkit
from benchmarks import cuda_check_answers as answers
from benchmarks.pretend import build
from benchmarks.shapes import ROOT
from models.kinds.conf import load_config
from models.kinds.registry import KINDS
from models.machine.cuda import driver as drivers
from models.machine.cuda.conclude import conclude
from models.machine.cuda.facts import Facts

GOOD = {"vars": [66, 66], "ops": [0, 0], "host_ms": 4.0, "kernels": 300.0, "compiled": 3, "compile_seconds": 12.0}
GOOD |= {"first_seconds": 20.0, "allocations": 0, "late_vars": [70, 70], "late_ops": [0, 0], "on_card": 9}
GOOD |= {"codes": [80, 90], "on_host": [], "meant_for_host": 2}
ONE_WAIT = {"median": 1, "most": 1, "bytes": 1, "most_bytes": 1}
GOOD |= {"waits": ONE_WAIT, "late_waits": ONE_WAIT | {"most": 5, "most_bytes": 4096}}
RELEASED = {"host_ms": 5.0, "operations": 28, "kernels": 100.0, "pool_mib": 700.0, "allocations": 0, "waits": ONE_WAIT}


@pytest.fixture
def check(monkeypatch, tmp_path):
    """A function that checks with these toolkits, pip answering that, and processes answering that."""

    def run(toolkits, arguments=(), answers=(), pip=1):
        left = list(answers)
        monkeypatch.setattr(cuda_check_toolkit.search, "toolkits", lambda *given: toolkits)
        monkeypatch.setattr(cuda_check, "pretended_card", lambda toolkit, codes, cache: asked.append(list(codes)))
        monkeypatch.setattr(cuda_check, "_worker", lambda *given: left.pop(0))
        for name in ("_adopt_orphans", "_bury_orphans"):  # the orphans of other tests are theirs
            monkeypatch.setattr(cuda_check, name, lambda: None)
        monkeypatch.setattr(cuda_check, "jittor_home", lambda: str(tmp_path))
        (tmp_path / ".cache" / "jittor").mkdir(parents=True, exist_ok=True)
        ended = SimpleNamespace(returncode=pip, stderr="no network\n")
        monkeypatch.setattr(cuda_check_toolkit.subprocess, "run", lambda *given, **named: ended)
        return cuda_check.main(list(arguments))

    asked = run.asked = []
    return run


@pytest.mark.parametrize("toolkits", [[], [toolkit((11, 8))], [toolkit((14, 0))]])
def test_without_an_nvcc_it_is_skipped_with_the_reason(check, capsys, toolkits):
    assert check(toolkits) == 0 and "skipped: there is no nvcc" in capsys.readouterr().out


def test_headers_that_cannot_be_fetched_are_a_reason_to_skip(check, capsys):
    assert check([toolkit(without=("cublas_v2.h",))]) == 0
    assert "skipped: the headers of" in (text := capsys.readouterr().out) and "no network" in text


def test_a_conf_that_compiles_and_leaves_nothing_behind_is_well(check, capsys):
    assert check([toolkit()], ["--conf", "debug", "--no-host"], [GOOD]) == 0
    text = capsys.readouterr().out
    assert "ok     debug: 30 steps, variables 66, operations 0, half-way 70 and 0; 4.0 ms of the host" in text
    assert "the host waits 1 times a step (at most 5) and reads 1 bytes (at most 4096); 9 operations with" in text
    assert "operations with code for 8.0 and 9.0, 2 meant for the host; 3 compiled" in text


def test_pictures_meshes_and_the_doctors_examples_are_compiled_too(check, capsys):
    assert check([toolkit()], ["--conf", "wmask", "--no-host"], [GOOD | {"of_results": 4}]) == 0
    assert "4 of them only pictures and meshes use" in capsys.readouterr().out
    names = [case for case, _ in cuda_check._cases(sorted(path.stem for path in (ROOT / "confs").glob("*.conf")))]
    examples = {"examples": 30, "on_card": 50, "codes": [80, 90], "on_host": []}
    assert check([toolkit()], ["--no-host"], [*[GOOD] * len(names), examples]) == 0
    assert "ok     the doctor's examples of 30 operations, forward and backward: 50" in capsys.readouterr().out
    for bad in ({"error": "it does not compile"}, examples | {"codes": [90]}, examples | {"on_host": ["transpose"]}):
        assert check([toolkit()], ["--no-host"], [*[GOOD] * len(names), bad]) == 1
        text = capsys.readouterr().out
        assert "WRONG  the doctor's examples" in text and "not well: the doctor's examples" in text


def test_one_conf_of_each_kind_is_shown():
    kinds = {load_config(ROOT / f"confs/{name}.conf", "check", ()).model.type for name in cuda_check.SHOWN}
    assert kinds == set(KINDS)


BAD = [
    {"error": "it does not compile"},
    *(GOOD | {kind: [66, 70]} for kind in ("vars", "ops", "late_vars", "late_ops")),
    GOOD | {"codes": [90]},
    GOOD | {"on_host": ["transpose"]},
    *(GOOD | {when: ONE_WAIT | {"median": 2}} for when in ("waits", "late_waits")),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_conf_that_does_not_is_named_and_the_others_are_checked(check, capsys, bad):
    arguments = ["--conf", "geo", "--conf", "debug", "--no-host"]
    assert check([toolkit()], arguments, [bad, GOOD]) == 1
    text = capsys.readouterr().out
    assert "WRONG  geo: " in text and "ok     debug" in text and "not well: geo" in text


def test_a_conf_whose_step_is_another_without_masks_is_checked_without_them_too(check, capsys):
    assert check([toolkit()], ["--conf", "fast", "--no-host"], [GOOD, GOOD | {"on_host": ["where"]}]) == 1
    assert "WRONG  fast without masks, with points: " in capsys.readouterr().out


def test_one_capability_is_enough_where_one_is_asked_for(check):
    assert check([toolkit()], ["--conf", "debug", "--no-host", "--one"], [GOOD | {"codes": [90]}]) == 0


def test_capabilities_that_are_asked_for_are_compiled_for_the_highest_is_the_card(check, capsys):
    arguments = ["--conf", "debug", "--no-host", "--capability", "12.0", "--capability", "7.5"]
    assert check([toolkit()], arguments, [GOOD | {"codes": [75, 120]}]) == 0
    assert check.asked == [[75, 120]] and "code for 7.5 and 12.0" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="--capability 7.0: nvcc compiles for 7.5, 8.0"):
        check([toolkit()], ["--capability", "7.0"])
    with pytest.raises(SystemExit, match="2"):
        check([toolkit()], ["--capability", "new"])
    assert "invalid capability value: 'new'" in capsys.readouterr().err


def _program(kind, capability, payload=40):
    """An entry of a fatbin as nvcc 13 writes it."""
    head = struct.pack("<HHIQ", kind, 257, 64, payload) + bytes(12) + struct.pack("<I", capability)
    return head.ljust(64, b"\0") + bytes(payload)


def test_the_capabilities_are_read_from_a_library_that_nvcc_made(tmp_path):
    entries = _program(2, 80) + _program(2, 90, 72) + _program(1, 75)  # the last one is text for the driver
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
    library = tmp_path / "op.so"
    library.write_bytes(b"before" + fatbin + b"between" + fatbin + b"after")
    assert answers.capabilities(library) == {80, 90}
    library.write_bytes(b"a library of the host")
    assert answers.capabilities(library) == set()


def test_targets_of_the_released_size_are_told(check, capsys):
    plain = RELEASED | {"host_ms": 25.0, "operations": 500}
    assert check([toolkit()], ["--conf", "debug"], [GOOD, RELEASED, plain]) == 0
    text = capsys.readouterr().out
    assert "memory asked of the card 0 times in 30 steps, the host waits 1 times a step" in text
    assert "target host time <= 0.25 of plain (0.20): reached" in text and "operations <= 30: reached" in text
    check([toolkit()], ["--conf", "debug", "--no-plain"], [GOOD, RELEASED | {"operations": 480}])
    assert "target operations <= 30: missed" in (text := capsys.readouterr().out) and "of plain" not in text


def test_a_first_start_is_weighed_with_all_that_it_compiles(check, capsys):
    first = {"compiled": 34, "compile_seconds": 100.0}
    assert check([toolkit()], ["--first", "--one"], [first]) == 0
    text = capsys.readouterr().out
    assert "100 in the step, 34 operations" in text and "target 400 processor seconds: reached" in text
    assert check([toolkit()], ["--first"], [{"error": "it does not compile"}]) == 1


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


def test_a_second_wait_has_nothing_to_wait_for(runtime):
    def twice(size):
        runtime.cudaDeviceSynchronize()
        runtime.cudaMemcpy(runtime.other, runtime.card, size, TO["to host"])

    assert _waits(runtime, twice) == (1, 8)


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


def test_jittor_is_not_loaded_before_the_card_is_chosen():
    program = "import sys, benchmarks.cuda_check_worker; sys.exit('jittor' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0

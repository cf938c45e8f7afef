"""The stand-alone benchmarks of kernels: their variants agree, and they compile for GPUs; and CUPTI's records."""

import json
import shutil
import subprocess

import pytest
from runs import ROOT

from benchmarks import gpu_kernels, gpu_trace

pytestmark = pytest.mark.slow

LARGEST_DIFFERENCE = 1e-6  # of float32 sums in another order
# The part of cuBLAS's header that the benchmarks use, where there is no other.
CUBLAS = """#pragma once
#include <cuda_runtime.h>
#include <library_types.h>
typedef struct cublasContext *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_ALLOC_FAILED = 3 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
cublasStatus_t cublasCreate(cublasHandle_t *);
#define OPERATIONS cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int
cublasStatus_t cublasGemmEx(OPERATIONS, const void *, const void *, cudaDataType, int, const void *, cudaDataType, int,
                            const void *, void *, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
cublasStatus_t cublasGemmStridedBatchedEx(OPERATIONS, const void *, const void *, cudaDataType, int, long long,
                                          const void *, cudaDataType, int, long long, const void *, void *,
                                          cudaDataType, int, long long, int, cublasComputeType_t, cublasGemmAlgo_t);
"""


def test_the_variants_of_a_kernel_agree(tmp_path):
    assert gpu_kernels.main(["cpu", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert {row["benchmark"] for row in rows} == {
        *("softplus", "slope", "column sums", "product", "weight gradient", "scatter")
    }
    assert [row for row in rows if not row["error"] < LARGEST_DIFFERENCE] == []


def test_a_program_that_fails_loses_only_its_own_lines(tmp_path, monkeypatch):
    programs = {"well": 'echo \'{"benchmark": "well"}\'', "ill": "echo out of memory >&2; exit 3"}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(gpu_kernels, "SOURCES", [ROOT / f"{name}.cu" for name in programs])
    rows = gpu_kernels.measure(tmp_path)
    assert rows == [{"benchmark": "well"}, {"benchmark": "ill", "failed": "status 3: out of memory"}]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize("source", gpu_kernels.SOURCES, ids=lambda source: source.stem)
def test_the_benchmarks_compile_for_gpus(source, tmp_path):
    (tmp_path / "cublas_v2.h").write_text(CUBLAS)
    targets = [f"-gencode=arch=compute_{code},code=sm_{code}" for code in (75, 80, 90)]
    command = [
        "nvcc",
        *gpu_kernels.NVCC_FLAGS,
        *targets,
        *gpu_kernels.INCLUDED,
        f"-I{tmp_path}",
        "-c",
        source,
        "-o",
        "a.o",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


# What gpu_trace calls, with two records of 160 bytes in a buffer: a kernel of 20 ns, and something else.
CUPTI = """#include <stdint.h>
#include <string.h>
static void (*request)(uint8_t **, size_t *, size_t *), (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
int cuptiActivityRegisterCallbacks(void *a, void *b) { request = a; complete = b; return 0; }
int cuptiActivityEnable(int kind) { return kind != 10; }
int cuptiActivityDisable(int kind) { return kind != 10; }
int cuptiActivityFlushAll(uint32_t flag) {
    uint8_t *buffer; size_t size, most;
    request(&buffer, &size, &most);
    memset(buffer, 0, 320);
    *(uint32_t *)buffer = 10; *(uint64_t *)(buffer + 16) = 10; *(uint64_t *)(buffer + 24) = 30;
    *(const char **)(buffer + 104) = "one";
    *(uint32_t *)(buffer + 160) = 2;
    complete(0, 0, buffer, size, 320);
    return 0;
}
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    *record = *record ? *record + 160 : buffer;
    return *record < buffer + valid ? 0 : 12;
}
"""


def test_kernels_are_recorded_written_and_read(tmp_path):
    library = tmp_path / "lib64" / "libcupti.so"
    library.parent.mkdir()
    (tmp_path / "cupti.c").write_text(CUPTI)
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", tmp_path / "cupti.c", "-o", library], check=True)
    with gpu_trace.recorded(tmp_path) as launches:
        pass
    assert launches == [gpu_trace.Launch("one", 10, 30)]
    gpu_trace.write(tmp_path / "trace.csv", launches)
    assert gpu_trace.read(tmp_path / "trace.csv") == launches
    assert gpu_trace.read(tmp_path / "absent.csv") == []


def test_a_missing_cupti_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_trace.sys, "path", [])
    with pytest.raises(gpu_trace.TraceError, match="there is no libcupti"), gpu_trace.recorded(tmp_path):
        pass

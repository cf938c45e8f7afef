"""The stand-alone benchmarks of kernels: their variants agree, and they compile for GPUs; and CUPTI's records."""

import ctypes
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


class Cupti:
    """Gives the records of a buffer one after the other, as CUPTI does."""

    def __init__(self, records):
        self.records = iter(records)

    def cuptiActivityGetNextRecord(self, buffer, valid, record):  # noqa: N802 (CUPTI's name)
        following = next(self.records, None)
        record._obj.value = None if following is None else ctypes.addressof(following)
        return 0 if following is not None else 12


def test_kernels_are_read_from_records_and_from_files(tmp_path):
    kind = gpu_trace.CONCURRENT_KERNEL
    kernel = gpu_trace._Kernel(kind=kind, start=10, end=30, name=b"one")
    other = gpu_trace._Kernel(kind=kind + 1, start=40, end=50)
    found = list(gpu_trace._launches(Cupti([kernel, other]), 1, 300))
    assert found == [gpu_trace.Launch("one", 10, 30)]
    gpu_trace.write(tmp_path / "trace.csv", found)
    assert gpu_trace.read(tmp_path / "trace.csv") == found
    assert gpu_trace.read(tmp_path / "absent.csv") == []


def test_a_missing_cupti_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_trace.sys, "path", [])
    with pytest.raises(gpu_trace.TraceError, match="there is no libcupti"), gpu_trace.recorded(tmp_path):
        pass

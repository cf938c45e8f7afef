"""What every test may rely on."""

import ctypes
import os

import pytest

FE_DFL_ENV = ctypes.c_void_p(-1)  # <fenv.h>: the default floating-point environment


@pytest.fixture(autouse=True)
def subnormal_numbers():
    """Each test starts with subnormal numbers switched on: loading one of Jittor's kernels switches them off."""
    ctypes.CDLL("libm.so.6").fesetenv(FE_DFL_ENV)


@pytest.fixture
def openmp_threads():
    """A function that sets the threads of native operations; their number is what it was after the test."""
    openmp = ctypes.CDLL("libgomp.so.1")
    yield openmp.omp_set_num_threads
    openmp.omp_set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))

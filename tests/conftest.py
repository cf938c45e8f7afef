"""What every test may rely on."""

import ctypes

import pytest

FE_DFL_ENV = ctypes.c_void_p(-1)  # <fenv.h>: the default floating-point environment


@pytest.fixture(autouse=True)
def subnormal_numbers():
    """Each test starts with subnormal numbers switched on: loading one of Jittor's kernels switches them off."""
    ctypes.CDLL("libm.so.6").fesetenv(FE_DFL_ENV)

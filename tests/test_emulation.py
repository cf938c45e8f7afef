"""Operations have a source for each device, with the same interface."""

import importlib
import itertools
import pkgutil
import re

import pytest
from forms import CUDA_FORMS, in_form

import models.ops
from models.ops.source import CUDA, Kernel, Source

pytestmark = pytest.mark.slow


def operations():
    """Everything in the modules of models.ops."""
    modules = [importlib.import_module(info.name) for info in pkgutil.walk_packages(models.ops.__path__, "models.ops.")]
    return {f"{module.__name__}.{name}": value for module in modules for name, value in vars(module).items()}


def test_each_operation_has_a_form_for_each_device():
    kernels = {name: value for name, value in operations().items() if isinstance(value, Kernel)}
    assert len(kernels) >= 14
    # What is of rays or of parameters, not of points: their references are fast enough on the CPU.
    only = ("place", "intervals", "draw_pixels", "outside_samples")
    for name, kernel in kernels.items():
        assert kernel.is_native == (name.rpartition(".")[2] not in only), name
        with in_form(CUDA_FORMS[0]):
            assert kernel.is_native, name


def test_no_function_of_a_text_for_a_card_is_compiled_where_not_called():
    """As a template it is not; nvcc compiles every kernel that it reads otherwise."""
    sources = {value.header: value for value in operations().values() if isinstance(value, Source)}
    for source in sources.values():
        lines = source.text(CUDA).splitlines()
        plain = re.compile(r"(__global__ )?(inline|void) ")
        found = [line for before, line in itertools.pairwise(lines) if plain.match(line) and "template <" not in before]
        assert found == [], source.header
        for kernel in re.findall(r"^template <int Unused = 0> __global__ void (\w+)", source.text(CUDA), re.MULTILINE):
            assert f"launch({kernel}<>" in source.text(CUDA), kernel

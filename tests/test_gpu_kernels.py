"""The stand-alone benchmarks of kernels: their variants agree; and a trace without CUPTI."""

import json

import pytest

from benchmarks import gpu_kernels, gpu_trace
from data.errors import UserError

pytestmark = pytest.mark.slow


def test_the_variants_of_a_kernel_agree(tmp_path):
    assert gpu_kernels.main(["cpu", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert len({row["benchmark"] for row in rows}) == 6
    assert [row for row in rows if not row["error"] < 1e-6] == []  # of float32 sums in another order


def test_a_missing_cupti_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_trace.sys, "path", [])
    with pytest.raises(UserError, match="there is no libcupti"), gpu_trace.recorded(tmp_path):
        pass

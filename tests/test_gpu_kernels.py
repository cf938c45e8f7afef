"""The stand-alone benchmarks of kernels: their variants agree; and CUPTI's records."""

import json
import subprocess

import pytest

from benchmarks import gpu_kernels, gpu_trace
from data.errors import UserError

pytestmark = pytest.mark.slow

LARGEST_DIFFERENCE = 1e-6  # of float32 sums in another order
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


def test_the_variants_of_a_kernel_agree(tmp_path):
    assert gpu_kernels.main(["cpu", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert len({row["benchmark"] for row in rows}) == 6
    assert [row for row in rows if not row["error"] < LARGEST_DIFFERENCE] == []


def test_kernels_are_recorded_and_a_missing_cupti_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_trace.sys, "path", [])
    with pytest.raises(UserError, match="there is no libcupti"), gpu_trace.recorded(tmp_path):
        pass
    (tmp_path / "lib64").mkdir()
    (tmp_path / "cupti.c").write_text(CUPTI)
    command = ["gcc", "-w", "-shared", "-fPIC", tmp_path / "cupti.c", "-o", tmp_path / "lib64" / "libcupti.so"]
    subprocess.run(command, check=True)
    with gpu_trace.recorded(tmp_path) as launches:
        pass
    assert launches == [gpu_trace.Launch("one", 10, 30)]

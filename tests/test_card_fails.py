"""A GPU failure during computation gives one message: the error of the library, what was saved, and what to do."""

import gc
import importlib
import re
from unittest.mock import Mock

import pytest
from runs import run, saved
from trainings import fail_after

import exp_runner
from models.machine import memory
from models.machine.cuda.choice import last_words

# Error messages of Jittor 1.3.11, and of the operations.
ILLEGAL = "CUDA error at /home/u/x_op.cc:83  code=700( cudaErrorIllegalAddress ) cudaGetLastError()"
FROM_JITTOR = f"""[f 1122 19:00:00.123456 94 executor.cc:721]
Execute fused operator(12/40)failed.
[OP TYPE]: fused_op:( array, binary.add,)
[Async Backtrace]: not found, please set env JT_SYNC=1, trace_py_var=3
[Reason]: [f 1122 19:00:00.123450 94 helper_cuda.h:128] {ILLEGAL}
**********
Async error was detected. To locate the async backtrace and get better error report, please rerun your code with
>>> export JT_SYNC=1"""
FINAL = {
    FROM_JITTOR: "CUDA error at x_op.cc:83 code=700( cudaErrorIllegalAddress ) cudaGetLastError()",
    "[Reason]: an illegal memory access was encountered: status 700": "status 700",
    "cuBLAS (unspecified launch failure): status 13": "cuBLAS (unspecified launch failure)",
    "CUDA error: device-side assert triggered": "device-side assert",
}
# Memory that ends is another matter, and after a wrong call the next one may succeed.
OTHERS = ["Unable to alloc cuda device memory for size 3", "invalid configuration argument: status 9", "no such file"]


@pytest.mark.parametrize("text", FINAL)
def test_the_last_words_of_a_card_are_one_line_without_folders(text):
    words = last_words(RuntimeError(text))
    assert FINAL[text] in words and "\n" not in words and "/" not in words and "[" not in words
    assert [last_words(RuntimeError(other)) for other in OTHERS] == [""] * len(OTHERS)


@pytest.mark.slow
def test_a_failing_card_is_told_with_the_newest_checkpoint_to_go_on_from(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        fail_after(patch, 5, ILLEGAL)
        assert run(tmp_path) == 3
    gc.collect()  # a process exits here; this one continues, and would compute arrays left by the failed step
    memory.release()
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("error: the GPU failed (") and "cudaErrorIllegalAddress" in sentence
    assert "the checkpoint of step 3 is the newest, run again with --is_continue" in sentence and "doctor" in sentence
    assert run(tmp_path, "--is_continue") == 0 and saved(tmp_path, 6).step == 6


def test_a_card_that_fails_elsewhere_is_one_sentence(monkeypatch, capsys):
    importlib.import_module("models.commands.modes")  # its modules would keep the function if loaded meanwhile
    monkeypatch.setattr("models.commands.model_modes.read_conf", Mock(side_effect=RuntimeError(FROM_JITTOR)))
    assert exp_runner.main([]) == 3
    assert re.match(r"error: the GPU failed \(CUDA error.*\): run again; ", capsys.readouterr().err)

"""A GPU failure during computation gives one message: the error of the library, what was saved, and what to do."""

import gc
import importlib
import re

import pytest
from memory_that_ends import without_memory
from runs import SHORT, run, saved

import exp_runner
from models.machine import memory
from models.machine.cuda.failure import last_words
from models.training.trainer import Trainer

# Error messages of Jittor 1.3.11, and of the operations.
ILLEGAL = (
    "CUDA error at /home/u/.cache/jittor/jt1.3.11/x_op.cc:83  code=700( cudaErrorIllegalAddress ) cudaGetLastError()"
)
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
    "CUDA error at a.cc:1  code=719( cudaErrorLaunchFailure ) f()": "cudaErrorLaunchFailure",
    "CUDA error at a.cc:1  code=214( cudaErrorECCUncorrectable ) f()": "cudaErrorECCUncorrectable",
    "CUDA error at a.cc:1  code=710( cudaErrorAssert ) f()": "cudaErrorAssert",
    "CUDA error: device-side assert triggered": "device-side assert",
    "CUDA error at a.cc:1  code=999( cudaErrorUnknown ) f()": "cudaErrorUnknown",
}
# Memory that ends is another matter, and after a wrong call the next one may succeed.
OTHERS = ["Unable to alloc cuda device memory for size 3", "invalid configuration argument: status 9", "no such file"]


@pytest.fixture
def nothing_stays():
    """After a GPU failure a process exits. This one continues, and would compute arrays left by the failed step."""
    yield
    gc.collect()
    memory.release()


def told(err):
    """The sentence; there is no traceback."""
    assert "Traceback" not in err
    return err.splitlines()[-1]


@pytest.mark.parametrize("text", FINAL)
def test_the_last_words_of_a_card_are_one_line_without_folders(text):
    words = last_words(RuntimeError(text))
    assert FINAL[text] in words and "\n" not in words and "/" not in words and "[" not in words


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors_are_none_of_a_card(text):
    assert last_words(RuntimeError(text)) == ""


def fail_after(monkeypatch, steps, words=ILLEGAL):
    """From then on nothing of a step can be computed."""
    original = Trainer.step

    def failing(self):
        if self.finished_steps == steps:
            self.model.objective = without_memory(self.model.objective, 0, words)
        return original(self)

    monkeypatch.setattr(Trainer, "step", failing)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_stays")
def test_where_a_card_fails_in_a_step_the_newest_checkpoint_is_named_and_gone_on_from(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        fail_after(patch, 5)
        assert run(tmp_path) == 3
    sentence = told(capsys.readouterr().err)
    assert sentence.startswith("error: the GPU failed (") and "cudaErrorIllegalAddress" in sentence
    assert "the checkpoint of step 3 is the newest, run again with --is_continue" in sentence and "doctor" in sentence
    assert run(tmp_path, "--is_continue") == 0 and saved(tmp_path, 6).step == 6


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_stays")
def test_where_it_fails_before_the_first_checkpoint_that_is_said(tmp_path, monkeypatch, capsys):
    fail_after(monkeypatch, 1)
    assert run(tmp_path) == 3
    assert "this run has written no checkpoint yet, run again;" in told(capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_stays")
def test_a_card_that_fails_and_then_gives_no_memory_is_told_as_one_that_fails(tmp_path, monkeypatch, capsys):
    def failing():
        raise RuntimeError(FROM_JITTOR)

    with monkeypatch.context() as patch:
        fail_after(patch, 2, "Unable to alloc cuda device memory")
        patch.setattr(memory, "release", failing)
        assert run(tmp_path, settings=(*SHORT, "train.ray_chunk=64")) == 3
    assert re.search(r"the GPU failed \(.*cudaErrorIllegalAddress", told(capsys.readouterr().err))


def test_a_card_that_fails_elsewhere_is_one_sentence(monkeypatch, capsys):
    def failing(arguments):
        raise RuntimeError(FROM_JITTOR)

    importlib.import_module("models.commands.table")  # its modules would keep the function if loaded meanwhile
    monkeypatch.setattr("models.commands.conf.read_conf", failing)
    assert exp_runner.main([]) == 3
    assert re.match(r"error: the GPU failed \(CUDA error.*\): run again; ", told(capsys.readouterr().err))

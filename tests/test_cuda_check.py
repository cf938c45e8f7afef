"""What `make cuda-check` says, with and without what it needs."""

from types import SimpleNamespace

import pytest
from cuda_machines import toolkit

from benchmarks import cuda_check, cuda_check_toolkit

GOOD = {"vars": [66, 66], "ops": [0, 0], "host_ms": 4.0, "kernels": 300.0, "compiled": 3, "compile_seconds": 12.0}
GOOD |= {"first_seconds": 20.0, "allocations": 0, "late_vars": [70, 70], "late_ops": [0, 0], "on_gpu": 9}
GOOD |= {"codes": [80, 90], "on_host": [], "meant_for_host": 2}
ONE_WAIT = {"median": 1, "most": 1, "bytes": 1, "most_bytes": 1}
GOOD |= {"waits": ONE_WAIT, "late_waits": ONE_WAIT | {"most": 5, "most_bytes": 4096}}


@pytest.fixture
def check(monkeypatch, tmp_path):
    """A function that checks with these toolkits, pip ending with these words, and processes answering that."""

    def run(toolkits, arguments=(), answers=(), pip="no network"):
        left = list(answers)
        monkeypatch.setattr(cuda_check_toolkit.search, "toolkits", lambda *given: toolkits)
        monkeypatch.setattr(cuda_check, "simulated_gpu", lambda toolkit, codes, cache: asked.append(list(codes)))
        monkeypatch.setattr(cuda_check, "_worker", lambda *given: left.pop(0))
        for name in ("_adopt_orphans", "_bury_orphans"):  # the orphans of other tests are theirs
            monkeypatch.setattr(cuda_check, name, lambda: None)
        monkeypatch.setenv("JITTOR_HOME", str(tmp_path / "home"))
        ended = SimpleNamespace(returncode=pip, stderr=f"{pip}\n")
        monkeypatch.setattr(cuda_check_toolkit.subprocess, "run", lambda *given, **named: ended)
        return cuda_check.main(list(arguments))

    asked = run.asked = []
    return run


@pytest.mark.parametrize("toolkits", [[], [toolkit((11, 8))], [toolkit((14, 0))]])
def test_without_an_nvcc_it_is_skipped_with_the_reason(check, capsys, toolkits):
    assert check(toolkits) == 0 and "skipped: there is no nvcc" in capsys.readouterr().out


def test_a_conf_that_compiles_and_leaves_nothing_behind_is_well(check, capsys):
    assert check([toolkit()], ["--conf", "debug", "--no-host"], [GOOD]) == 0
    text = capsys.readouterr().out
    assert "ok     debug: 30 steps, variables 66, operations 0, half-way 70 and 0; 4.0 ms of the host" in text
    assert "the host waits 1 times a step (at most 5) and reads 1 bytes (at most 4096); 9 operations with" in text
    assert "operations with code for 8.0 and 9.0, 2 meant for the host; 3 compiled" in text

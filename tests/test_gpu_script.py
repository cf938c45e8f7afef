"""`benchmarks/gpu.sh`: a stage that fails stops no other, a run ends or can be stopped; its results and kernels."""

import json
import signal
import subprocess
import sys
import time

import pytest
from runs import ROOT

from benchmarks import gpu_kernels, gpu_report, gpu_trace
from benchmarks.gpu_run import STOPPED
from benchmarks.gpu_trace import Launch

pytestmark = pytest.mark.alone

SCRIPT = str(ROOT / "benchmarks" / "gpu.sh")
SECONDS = 30  # after which a test gives up
# An interpreter whose programs do nothing but to say so; $STAGE is what one of them does.
PYTHON = f"""#!/bin/sh
case "$*" in
    *gpu_run*) exec {sys.executable} "$@" ;;
    *steps.json*) eval "$STAGE" ;;
    *mode\\ evaluate*) mkdir -p "$WORK/runs/bunny/report" && echo > "$WORK/runs/bunny/report/report.png" ;;


    *) echo "did $1" ;;
esac
"""


def started(tmp_path, *arguments, **variables):
    """The script, with a program for Python."""
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    paths = {"PYTHON": "python", "OUT": "out", "WORK": "work", "PACK": "pack", "TMPDIR": "", "HOME": ""}
    environment = {name: str(tmp_path / path) for name, path in paths.items()} | {"PATH": "/usr/bin:/bin"} | variables
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(["bash", SCRIPT, *arguments], env=environment, **pipes)


def ended(process):
    said, _ = process.communicate(timeout=SECONDS)
    return process.returncode, said


def statuses(tmp_path):
    return {row[0]: row[1] for row in json.loads((tmp_path / "out" / "results.json").read_text())["stages"]}


def test_a_stage_that_fails_stops_no_other(tmp_path):
    assert ended(started(tmp_path, STAGE="seq 500; exit 3"))[0] == 0
    found = statuses(tmp_path)
    assert list(found)[:3] == ["facts", "unpack", "packages"] and {*list(found)[3:5]} == {"compile", "build"}
    assert list(found)[5:] == ["kernels", "steps", "trace", "trace_tf32", "bunny_train", "bunny", "fast"]
    assert found.pop("steps") == "3" and {*found.values()} == {"0"}
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"results.json", "results.md", "logs.tar.gz", "bunny.png"}
    assert "[260 lines]" in json.loads((tmp_path / "out" / "results.json").read_text())["logs"]["steps"]
    status, said = ended(started(tmp_path, STAGES="step"))
    assert status == 2 and said.startswith("error: STAGES: there is no stage step")


def test_a_signal_ends_the_stage_with_its_children_and_the_run(tmp_path):
    alive = tmp_path / "alive"
    work = f"(trap '' INT; while :; do touch {alive}; sleep 0.1; done) & wait"
    running = started(tmp_path, STAGE=work, LIMIT="16", STAGES="steps")
    while not alive.exists():
        time.sleep(0.05)
    assert "another call uses" in ended(started(tmp_path))[1]
    running.send_signal(signal.SIGTERM)
    status, said = ended(running)
    assert status == 128 + signal.SIGTERM and "stopped by SIGTERM" in said and statuses(tmp_path)["steps"] == STOPPED
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


ROW = {"seconds": 0.01, "pool_mib": 700.0, "shape": "512x64+64"}
STEPS = {"device": "a card", "rate": 5e13, "share": 0.7, "steps": [ROW], "tf32": [{"seconds": 0.008}]}
HIDDEN = "neus::hidden_layers(neus::SoftplusNet const&, long)::{lambda(int, int, long)#1}"
# Of two steps: a product, an element-wise kernel, and before the second step a wait of 1 ms.
LAUNCHES = [
    Launch("sm90_xmma_gemm_f32f32", 0, 600_000),
    Launch(f"void neus::each_kernel<neus::AtPlaces<{HIDDEN}> >(long, neus::AtPlaces<{HIDDEN}>)", 610_000, 710_000),
    Launch("void cublasLt::splitKreduce_kernel<32>", 1_710_000, 2_310_000),
]


@pytest.mark.slow
def test_the_variants_of_a_kernel_agree(tmp_path):
    assert gpu_kernels.main(["cpu", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "kernels.json").read_text())["kernels"]
    assert len({row["benchmark"] for row in rows}) == 6
    assert [row for row in rows if not row["error"] < 1e-6] == []  # of float32 sums in another order


def test_the_kernels_of_a_step_are_added_up_by_group_and_by_name():
    found = gpu_trace.summary(LAUNCHES, 2)
    names = ("matrix products", "split-depth sums of cuBLAS", "element-wise")
    assert [row[:2] for row in found["groups"]] == [(name, 0.5) for name in names]
    assert found["kernels"][2] == ("hidden_layers, lambda 1", 0.5, pytest.approx(0.05))
    assert found["figures"]["ms between launches"] == pytest.approx(0.005)
    assert found["figures"]["ms of waiting for the host"] == pytest.approx(0.5)


def test_results_and_targets_are_in_the_table_and_failed_stages_are_not(tmp_path):
    for folder in ("logs", "runs/bunny/report", "out"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "logs" / "lego.log").write_text("".join(f"{line}\n" for line in range(500)))
    found = {"steps": STEPS, "fast": {"fast": [ROW]}, "trace": gpu_trace.summary(LAUNCHES, 2)}
    found["peer"] = {"seconds": 0.04, "tf32_seconds": 0.02, "peak_mib": 4000.0}
    for name, content in found.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "runs/bunny/report/metrics.json").write_text(json.dumps({"chamfer": 0.006}))
    stages = [(name, "0", 9, 60) for name in ("steps", "bunny", "peer", "trace")] + [("fast", "124", 60, 60)]
    gpu_report.write(tmp_path, tmp_path / "out", stages)
    text = (tmp_path / "out" / "results.md").read_text()
    assert text.startswith("a card\n") and "| fast | 124 | 60 | 60 |  |" in text and "fast 5" not in text
    assert "| step, ms | 29.6 | 10 |" in text and "| step / published <= 0.68 | 0.25 | yes |" in text
    assert "| bunny chamfer <= 0.001 | 0.006 | no |" in text and "| lego psnr >= 28.0 | - | no |" in text

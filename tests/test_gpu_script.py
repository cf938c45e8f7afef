"""`benchmarks/gpu.sh`: a stage that fails stops no other, a run ends or can be stopped; its results and kernels."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from runs import ROOT

from benchmarks import gpu_report, gpu_run, gpu_trace
from benchmarks.gpu_run import LIMITS, REPORT, STOPPED, Place
from benchmarks.gpu_trace import Launch

pytestmark = pytest.mark.alone

SCRIPT = str(ROOT / "benchmarks" / "gpu.sh")
SECONDS = 180  # after which a test gives up
# An interpreter whose programs do nothing but to say so; $STAGE is what one of them does.
PYTHON = f"""#!/bin/sh
case "$*" in
    *gpu_run*) exec {sys.executable} "$@" ;;
    WRONG
    *steps.json*) eval "$STAGE" ;;
    *mode\\ evaluate*) mkdir -p "$WORK/runs/bunny/report" && echo > "$WORK/runs/bunny/report/report.png" ;;


    *) echo "did $1" ;;
esac
"""


def started(tmp_path, *arguments, program="", **variables):
    """The script, with a program for Python, of which those of a pattern fail."""
    (tmp_path / "python").write_text(PYTHON.replace("WRONG", f"{program}) exit 1 ;;" if program else ""))
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
    assert list(found)[:3] == ["facts", "unpack", "packages"] and {*list(found)[3:5]} == {"tiles", "compile"}
    assert list(found)[5:] == ["parity_wmask", "steps", "trace"]
    assert found.pop("steps") == "3" and {*found.values()} == {"0"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.json", "results.md", "logs.tar.gz"}
    assert "[260 lines]" in json.loads((tmp_path / "out" / "results.json").read_text())["logs"]["steps"]
    status, said = ended(started(tmp_path, STAGES="step"))
    assert status == 2 and said.startswith("error: STAGES: there is no stage step")
    status, said = ended(started(tmp_path, CALL="3"))
    assert status == 2 and said.startswith("error: CALL=3: must be 1 or 2")


def test_the_second_call_trains_and_brings_the_cache_back(tmp_path):
    (tmp_path / ".cache" / "jittor").mkdir(parents=True)
    assert ended(started(tmp_path, CALL="2", STAGE="true"))[0] == 0
    trained = ["bunny_train", "bunny", "fast", "splats", "dtu_train", "dtu"]
    assert list(statuses(tmp_path))[3:] == ["parity_womask", "steps_womask", *trained, "cache"]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"results.json", "results.md", "logs.tar.gz", "bunny.png", "cache.tar.xz"}


@pytest.mark.parametrize("wrong", ["tiles", "parity"])
def test_after_a_wrong_result_of_the_networks_no_figure_is_measured(tmp_path, wrong):
    program = {"tiles": "*gpu_tiles*", "parity": "*parity.py*"}[wrong]
    status, said = ended(started(tmp_path, program=program))
    assert status == 1 and "the networks are wrong, see the logs; no figures were measured" in said
    assert list(statuses(tmp_path))[-3:] == ["parity_wmask", "racecheck", "memcheck"]


def test_each_call_fits_its_limit():
    for peer in ("", "folder"):
        listed = gpu_run.stages(Place("cuda", "python", ROOT, peer))
        for call, limit in LIMITS.items():
            groups = gpu_run.chosen(listed, call, ())
            assert sum(max(stage.limit for stage in group) for group in groups) <= limit - REPORT


def test_checkout_and_pack_can_be_carried():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    carried = sum(path.stat().st_size for path in files if path.is_file()) / 2**20
    text = (ROOT / "benchmarks" / "gpu.sh").read_text()
    most, with_checkout = (int(re.search(rf"\b{name}=(\d+)", text)[1]) for name in ("MOST_MIB", "MOST_CARRIED_MIB"))
    assert carried + most < with_checkout == 64


def test_a_signal_ends_the_stage_with_its_children_and_the_run(tmp_path):
    alive = tmp_path / "alive"
    work = f"(trap '' INT; while :; do touch {alive}; sleep 0.1; done) & wait"
    running = started(tmp_path, STAGE=work, LIMIT="180", STAGES="steps")
    while not alive.exists():
        time.sleep(0.05)
    assert "another call uses" in ended(started(tmp_path))[1]
    running.send_signal(signal.SIGTERM)
    status, said = ended(running)
    assert status == 128 + signal.SIGTERM and "stopped by SIGTERM" in said and statuses(tmp_path)["steps"] == STOPPED
    alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


ROW = {"seconds": 0.01, "pipelined": 0.008, "enqueued": 0.004, "pool_mib": 700.0, "host": [("trainer.py:step", 1, 0.5)]}
STEPS = {"device": "a card", "rate": 5e13, "share": 0.7, "float32": ROW, "reduced": {**ROW, "seconds": 0.008}}
HIDDEN = "neus::hidden_layers(neus::SoftplusNet const&, long)::{lambda(int, int, long)#1}"
# Of two steps: a product, an element-wise kernel, and before the second step a wait of 1 ms.
LAUNCHES = [
    Launch("sm90_xmma_gemm_f32f32", 0, 600_000),
    Launch(f"void neus::each_kernel<neus::AtPlaces<{HIDDEN}> >(long, neus::AtPlaces<{HIDDEN}>)", 610_000, 710_000),
    Launch("void cublasLt::splitKreduce_kernel<32>", 1_710_000, 2_310_000),
]


def test_the_kernels_of_a_step_are_added_up_by_group_and_by_name():
    found = gpu_trace.summary(LAUNCHES, 2)
    names = ("matrix products", "split-depth sums of cuBLAS", "element-wise")
    assert [row[:2] for row in found["groups"]] == [(name, 0.5) for name in names]
    assert found["kernels"][2] == ("hidden_layers, lambda 1", 0.5, pytest.approx(0.05))
    assert found["figures"]["ms between launches"] == pytest.approx(0.005)
    assert found["figures"]["ms of waiting for the host"] == pytest.approx(0.5)


def test_every_kernel_in_tiles_has_a_group():
    kernel = re.compile(r"__global__ void __launch_bounds__\(\w[^)]*\)\s+(\w+)\(")
    sources = (ROOT / "models" / "ops" / "csrc" / "cuda").glob("*.h")
    names = [name for path in sources for name in kernel.findall(path.read_text())]
    assert "relu_tiles_kernel" in names and "sdf_tiles_kernel" in names and "gradients_kernel" in names
    groups = {name: gpu_trace.group_of(f"void neus::{name}<128>(neus::TileNet, long)") for name in names}
    assert {*groups.values()} == {"networks in tiles", "gradients of weights"}, groups


def test_results_and_targets_are_in_the_table_and_failed_stages_are_not(tmp_path):
    for folder in ("logs", "runs/bunny/report", "out"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "logs" / "dtu.log").write_text("".join(f"{line}\n" for line in range(500)))
    found = {"steps": STEPS, "fast": {"fast": [ROW]}, "trace": {"float32": gpu_trace.summary(LAUNCHES, 2)}}
    found["peer"] = {"seconds": 0.04, "tf32_seconds": 0.02, "peak_mib": 4000.0}
    for name, content in found.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / "runs/bunny/report/metrics.json").write_text(json.dumps({"chamfer": 0.006}))
    stages = [(name, "0", 9, 60) for name in ("steps", "bunny", "peer", "trace")] + [("fast", "124", 60, 60)]
    gpu_report.write(tmp_path, tmp_path / "out", stages)
    text = (tmp_path / "out" / "results.md").read_text()
    assert text.startswith("a card\n") and "| fast | 124 | 60 | 60 |  |" in text and "fast 5" not in text
    assert (
        "| step, ms | 29.6 | 14 to 15, then 10 | 10 |" in text and "| step / published <= 0.35 | 0.25 | yes |" in text
    )
    assert "| bunny chamfer <= 0.001 | 0.006 | no |" in text and "| womask step, ms <= 18.0 | - | no |" in text
    assert "| trainer.py:step | 1 | 0.5 |" in text and "| step pipelined, ms | - |" in text

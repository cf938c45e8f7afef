"""The results of benchmarks/gpu.sh as one file and one table, also if some are missing."""

import json

import pytest

from benchmarks import gpu_launches, gpu_report, gpu_trace
from benchmarks.gpu_trace import Launch

STEP = {"seconds": 0.01, "pool_mib": 700.0, "share": 0.7, "shape": "512x64+64"}
STEPS = {"device": "a card", "steps": [STEP], "tf32": [{"seconds": 0.008}]}
PEER = {"peer": {"float32_seconds": 0.04, "tf32_seconds": 0.02, "peak_mib": 4000.0}}
HIDDEN = "neus::hidden_layers(neus::SoftplusNet const&, long)::{lambda(int, int, long)#1}"
# Of two steps: a product, an element-wise kernel, and before the second step a wait of 1 ms.
LAUNCHES = [
    Launch("sm90_xmma_gemm_f32f32", 0, 600_000),
    Launch(f"void neus::each_kernel<neus::AtPlaces<{HIDDEN}> >(long, neus::AtPlaces<{HIDDEN}>)", 610_000, 710_000),
    Launch("sm90_xmma_gemm_f32f32", 1_710_000, 2_310_000),
]


@pytest.fixture
def results(tmp_path):
    """A folder with stages of which one failed."""
    (tmp_path / "stages.csv").write_text(
        "facts,0,3,60\nsteps,0,100,300\nbunny,0,9,300\nlego,124,420,420\npeer,0,9,300\nkernels,0,9,60\n"
    )
    for folder in ("logs", "runs/bunny/report", "runs/lego/report", "out"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("facts", "lego"):
        (tmp_path / "logs" / f"{name}.log").write_text("".join(f"{line}\n" for line in range(500)))
    (tmp_path / "logs" / "peer.log").write_text("67 passed\n}\n")
    (tmp_path / "steps.json").write_text(json.dumps(STEPS))
    (tmp_path / "peer.json").write_text(json.dumps(PEER))
    (tmp_path / "runs/bunny/report/metrics.json").write_text(
        json.dumps({"surface": {"chamfer": 0.006, "f_score": 0.9}})
    )
    (tmp_path / "runs/lego/report/metrics.json").write_text("cut short {")
    times = {("softplus", "13312x256", "a division per element"): 8.0, ("softplus", "13312x256", "each_value"): 2.0}
    times |= {("weight gradient", "13312 rows", name): 9.0 - i for i, name in enumerate(("one product", "4 parts"))}
    keys = ("benchmark", "shape", "variant")
    rows = [
        dict(zip(keys, key, strict=True), microseconds=time, rate=1, unit="GB/s", error=0)
        for key, time in times.items()
    ]
    (tmp_path / "kernels.json").write_text(
        json.dumps({"kernels": [*rows, {"benchmark": "sums", "failed": "status 1: x"}]})
    )
    return tmp_path


def written(folder):
    gpu_report.main(folder, folder / "out")
    return (folder / "out" / "results.md").read_text(), json.loads((folder / "out" / "results.json").read_text())


def test_stages_predictions_and_targets_are_in_the_table(results):
    text, found = written(results)
    assert (
        text.startswith("a card\n")
        and "| lego | 124 | 420 | 420 |" in text
        and "| peer | 0 | 9 | 300 | 67 passed |" in text
    )
    assert "| share of the GPU's float32 rate >= 0.6 | 0.7 | yes |" in text
    assert "| step against the published code <= 0.68 | 0.25 | yes |" in text
    assert "| Chamfer distance of the bunny after 50 s <= 0.001 | 0.006 | no |" in text
    assert "| step in TF32 against the published code in TF32 <= 0.45 | 0.4 | yes |" in text
    assert "| PSNR of lego's test views, dB >= 28.0 | not measured | no |" in text
    assert f"| step, ms | {gpu_report.PREDICTED['step, ms']} | 10 |" in text
    assert "19 are counted) | 0.25 |" in text and "below 0.5 | 0.8889 |" in text
    assert "| softplus | 13312x256 | each_value | 2.0 | 1 GB/s | 0 |" in text and "| sums |  | status 1: x |" in text
    assert found["measured"]["steps"] == STEPS


def test_of_a_failed_stage_the_first_lines_of_its_log_are_kept_too(results):
    _, found = written(results)
    last = [str(line) for line in range(500 - gpu_report.LAST_LINES, 500)]
    assert found["logs"]["facts"] == last and found["logs"]["lego"][-len(last) :] == last
    assert found["logs"]["lego"][: gpu_report.FIRST_LINES] == [str(line) for line in range(gpu_report.FIRST_LINES)]


def test_the_kernels_of_a_step_are_added_up_by_group_and_by_name(results):
    assert gpu_launches.short(LAUNCHES[1].name) == "hidden_layers, lambda 1"
    gpu_trace.write(results / "trace.csv", LAUNCHES)
    (results / "trace.json").write_text(json.dumps({"traced_steps": 2}))
    assert written(results)[1]["launches"] == {}  # of no stage of this run
    with open(results / "stages.csv", "a") as file:
        file.write("trace,0,20,120\n")
    text, found = written(results)
    assert (
        "| matrix products | 1 | 0.600 | 92.3% |" in text and "| hidden_layers, lambda 1 | 0.5 | 0.050 | 7.7% |" in text
    )
    assert found["figures"]["step, ms between launches"] == pytest.approx(0.005)
    assert found["figures"]["step, ms of waiting for the host"] == pytest.approx(0.5)


def test_a_profiler_replaces_a_trace_that_failed(results):
    rows = [("product", "gpu__time_duration.sum", "1,500"), ("add<int, 2>", "gpu__time_duration.sum", "700")]
    rows += [("product", "gpu__time_duration.sum", "500"), ("product", "another", "9")]
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    lines += [f'"{i}","{name}","{metric}","ns","{value}"' for i, (name, metric, value) in enumerate(rows)]
    (results / "ncu.csv").write_text("\n".join(lines))
    (results / "ncu.json").write_text(json.dumps({"profiled_steps": 2}))
    with open(results / "stages.csv", "a") as file:
        file.write("trace,1,20,120\nncu,0,20,120\n")
    text, found = written(results)
    assert text.index("| product | 1 | 0.001 |") < text.index("| add<int, 2> | 0.5 | 0.000 |")
    assert "step, ms of waiting for the host" not in found["figures"]

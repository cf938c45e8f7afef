"""The results of benchmarks/gpu.sh as one file and one table, also if some are missing."""

import json

import pytest

from benchmarks import gpu_report, gpu_trace
from benchmarks.gpu_trace import Launch

ROW = {"seconds": 0.01, "pool_mib": 700.0, "shape": "512x64+64"}
STEPS = {"device": "a card", "rate": 5e13, "share": 0.7, "steps": [ROW], "tf32": [{"seconds": 0.008}]}
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
    assert "| step, ms | 29.6 | 10 |" in text and "| share of the GPU's float32 rate >= 0.6 | 0.7 | yes |" in text
    assert "| step / published <= 0.68 | 0.25 | yes |" in text and "| lego psnr >= 28.0 | - | no |" in text
    assert "| bunny chamfer <= 0.001 | 0.006 | no |" in text and "| matrix products | 0.5 | 0.3 |" in text

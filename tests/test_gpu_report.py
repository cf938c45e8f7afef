"""The results of benchmarks/gpu.sh as one file and one table, also if some are missing."""

import json
import re
import subprocess

import pytest
from runs import ROOT

from benchmarks import gpu_report

STEPS = {"steps": [{"seconds": 0.01, "pool_mib": 700.0, "share": 0.7, "shape": "512x64+64"}]}
PEER = {"peer": {"float32_seconds": 0.04, "tf32_seconds": 0.02, "peak_mib": 4000.0}}


@pytest.fixture
def results(tmp_path):
    """A folder with two stages, one of which failed."""
    (tmp_path / "stages.csv").write_text(
        "facts,0,3,60\nsteps,0,100,300\nbunny_40s,0,9,300\nlego,124,420,420\npeer,0,9,300\ntf32,0,9,300\n"
    )
    (tmp_path / "facts.log").write_text("a card\n" * 100)
    (tmp_path / "steps.json").write_text(json.dumps(STEPS))
    (tmp_path / "peer.json").write_text(json.dumps(PEER))
    (tmp_path / "bunny_40s.json").write_text(json.dumps({"surface": {"chamfer": 0.006, "f_score": 0.9}}))
    (tmp_path / "tf32.json").write_text(json.dumps({"tf32": [{"seconds": 0.008}]}))
    (tmp_path / "lego.json").write_text("cut short {")
    return tmp_path


def test_stages_figures_and_targets_are_in_the_table(results):
    gpu_report.main(results)
    text = (results / "results.md").read_text()
    assert "| lego | 124 | 420 | 420 |" in text and "| share of the GPU's float32 rate >= 0.6 | 0.7 | yes |" in text
    assert "| step against the published code <= 0.5 | 0.25 | yes |" in text
    assert "| Chamfer distance of the bunny after 40 s <= 0.0065 | 0.006 | yes |" in text
    assert "| step in TF32 against the published code in TF32 <= 0.35 | 0.4 | no |" in text
    assert "| PSNR of lego's test views, dB >= 28.0 | not measured | no |" in text
    found = json.loads((results / "results.json").read_text())
    assert found["logs"]["facts"] == ["a card"] * gpu_report.LAST_LINES and found["measured"]["steps"] == STEPS


def test_the_kernels_with_the_longest_times_come_first(results):
    rows = [("product", "1,500"), ("add<int, 2>", "700"), ("product", "500")]
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    lines += [f'"{i}","{name}","gpu__time_duration.sum","ns","{value}"' for i, (name, value) in enumerate(rows)]
    (results / "kernels.csv").write_text("\n".join(lines))
    assert gpu_report.collect(results)["kernels"] == []  # of no stage of this run
    with open(results / "stages.csv", "a") as file:
        file.write("kernels,0,20,120\n")
    assert gpu_report.kernel_times(results / "kernels.csv") == [("product", 2, 2000), ("add<int, 2>", 1, 700)]
    gpu_report.main(results)
    table = (results / "results.md").read_text()
    assert table.index("| product | 2 | 0.002 |") < table.index("| add<int, 2> | 1 | 0.001 |")


@pytest.mark.cli
def test_the_script_is_one_and_its_programs_are_there():
    script = ROOT / "benchmarks" / "gpu.sh"
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text(encoding="utf-8")
    for name in ("gpu_steps", "gpu_report"):
        assert f"benchmarks.{name}" in text and (ROOT / "benchmarks" / f"{name}.py").is_file()
    files = re.findall(r"tests/test_\w+\.py", text)
    assert files and [name for name in files if not (ROOT / name).is_file()] == []

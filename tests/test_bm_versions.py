"""Two checkouts take their steps in turns, and their ratio is that of their times."""

import pytest

from benchmarks import bm_versions

# The little of a checkout that the measurement touches: a step takes its share of the seconds that the conf gives.
FILES = {
    "exp_runner.py": "from models.training.trainer import Trainer\n"
    "def main(arguments):\n"
    "    assert arguments[:2] == ['--conf', 'x.conf'] and 'base_exp_dir' in arguments[-1]\n"
    "    while True:\n        Trainer().step()\n",
    "models/training/trainer.py": "import time\nclass Trainer:\n    def step(self):\n"
    "        until = time.process_time() + SECONDS\n        while time.process_time() < until:\n            pass\n",
    "jittor.py": "def sync_all(wait):\n    pass\n",
}


@pytest.fixture
def checkout(tmp_path):
    def write(name, seconds):
        for path, text in FILES.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text.replace("SECONDS", str(seconds)))
        return tmp_path / name

    return write


@pytest.mark.cli
def test_the_ratio_of_the_times_of_a_step(checkout, monkeypatch, capsys):
    monkeypatch.setattr(bm_versions, "ROOT", checkout("own", 0.02))
    flags = ["--rounds", "3", "--steps", "2", "--warm-up", "1", "--", "--conf", "x.conf"]
    assert bm_versions.main([str(checkout("other", 0.01)), *flags]) == 0
    said = capsys.readouterr().out
    assert 1.7 < float(said.splitlines()[1].removeprefix("ratio: ").split()[0]) < 2.3, said


def test_medians_of_the_rounds():
    own = [{"wall": 2.0, "processor": 1.0}, {"wall": 9.0, "processor": 1.5}, {"wall": 1.0, "processor": 4.0}]
    other = [{"wall": 1.0, "processor": 1.0}, {"wall": 3.0, "processor": 1.0}, {"wall": 1.0, "processor": 2.0}]
    assert bm_versions.report(own, other) == [
        "CPU time of a step: 1500.00 ms, the other 1000.00 ms",
        "ratio: 1.500 of CPU time, 2.000 of wall-clock time; CPU by round: 1.000 1.500 2.000",
    ]


@pytest.mark.cli
def test_mistakes_are_one_sentence(checkout, monkeypatch, capsys, tmp_path):
    assert bm_versions.main([str(tmp_path), "--", "--conf", "x.conf"]) == 2
    assert "is no checkout of the project" in capsys.readouterr().err
    other = checkout("other", 0.01)
    assert bm_versions.main([str(other), "--rounds", "0"]) == 2
    assert "must be at least 1" in capsys.readouterr().err
    (other / "exp_runner.py").write_text("raise SystemExit('error: x.conf: no such file')")
    monkeypatch.setattr(bm_versions, "ROOT", other)
    assert bm_versions.main([str(other), "--", "--conf", "x.conf"]) == 2
    assert "ended with status 1: error: x.conf: no such file" in capsys.readouterr().err

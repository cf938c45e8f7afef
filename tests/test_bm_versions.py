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


@pytest.mark.cli
def test_the_ratio_of_the_times_of_a_step_or_one_sentence(tmp_path, monkeypatch, capsys):
    for name, seconds in (("own", 0.02), ("other", 0.01)):
        for path, text in FILES.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(text.replace("SECONDS", str(seconds)))
    monkeypatch.setattr(bm_versions, "ROOT", tmp_path / "own")
    flags = ["--rounds", "3", "--steps", "2", "--warm-up", "1", "--", "--conf", "x.conf"]
    assert bm_versions.main([str(tmp_path / "other"), *flags]) == 0
    said = capsys.readouterr().out
    assert 1.7 < float(said.splitlines()[3].split("|")[4]) < 2.3, said
    assert bm_versions.main([str(tmp_path), *flags]) == 2
    assert "is no checkout of the project" in capsys.readouterr().err

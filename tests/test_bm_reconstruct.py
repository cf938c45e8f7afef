"""benchmarks/bm_reconstruct.py: the medians that it prints, and a reconstruction that fails."""

from benchmarks import bm_reconstruct


def run_of(features, training):
    phases = {"features": {"wall": features, "processor": 2 * features}}
    return {"phases": phases | ({"training": {"wall": training, "processor": training}} if training else {})}


def test_the_table_has_medians_and_a_phase_that_a_run_lacks():
    rows = bm_reconstruct.medians([run_of(1.0, 10.0), run_of(3.0, 20.0), run_of(2.0, 0.0)])
    assert rows == [("features", 2.0, 4.0), ("training", 10.0, 10.0), ("all", 11.0, 12.0)]


def test_a_reconstruction_that_fails_is_told(tmp_path, capsys):
    flags = ["--runs", "1", "--out", str(tmp_path / "out"), "--", "--minutes", "1"]
    assert bm_reconstruct.main([str(tmp_path / "missing"), *flags]) == 2
    assert "ended with status 2; see" in capsys.readouterr().err
    assert "missing" in (tmp_path / "out" / "0" / "output.log").read_text()

"""`benchmarks/gpu_tiles.py`: the networks in tiles beside float64, here in emulation, as on a GPU without Jittor."""

import pytest

from benchmarks import gpu_tiles
from data.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiles")
    assert gpu_tiles.main(["--build", str(folder), "--device", "cpu"]) == 0
    return folder


def test_every_result_is_compared_and_right(built, capsys):
    assert gpu_tiles.main(["--run", str(built), "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24 and all(": ok error=" in line for line in lines)


def test_a_wrong_result_is_named_and_is_the_exit_status(built, capsys, monkeypatch):
    monkeypatch.setattr(gpu_tiles, "GRADIENT_BOUND", 1e-9)
    assert gpu_tiles.main(["--run", str(built), "--device", "cpu"]) == 1
    wrong = [line for line in capsys.readouterr().out.splitlines() if "WRONG" in line]
    assert len(wrong) == 2 and all("gradient: WRONG error=" in line for line in wrong)


def test_without_libraries_it_says_what_makes_them(tmp_path):
    with pytest.raises(UserError, match="--build"):
        gpu_tiles.main(["--run", str(tmp_path)])

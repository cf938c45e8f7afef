"""`--mode prepare` on the command line: what is wrong is said in one sentence, with exit status 2, at once."""

from pathlib import Path

import numpy as np
import pytest

import exp_runner
from data.io.images import write_image
from data.prepare import pipeline
from models.config.program import PROGRAM_FOLDER


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Prepare case a in a folder of photographs, masks and what is neither; returns status and output."""
    monkeypatch.chdir(tmp_path)
    for folder, count in (("two", 2), ("four", 4), ("masks", 4)):
        (tmp_path / folder).mkdir()
        for index in range(count):
            size = (9, 9) if folder == "masks" else (24, 32, 3)
            write_image(tmp_path / folder / f"photo_{index}.png", np.full(size, index, np.uint8))

    def call(*arguments):
        return exp_runner.main(["--mode", "prepare", *map(str, arguments)]), capsys.readouterr()

    return call


FOUR = ["--case", "a", "--images", "four"]
MISTAKES = {
    "no images": (["--case", "a"], "give --images FOLDER"),
    "a path as case": (["--images", "two", "--case", "../a"], "give --case NAME, a plain name"),
    "missing": (["--images", "nowhere", "--case", "a"], "--images nowhere: no such folder or video"),
    "two photographs": (["--images", "two", "--case", "a"], "two: holds 2 photographs; at least 3 are needed"),
    "a region in words": ([*FOUR, "--roi", "a b c d"], '--roi "a b c d": give the centre'),
    "no such masks": ([*FOUR, "--masks", "nowhere"], "--masks nowhere: no such folder"),
    "a mask of another size": ([*FOUR, "--masks", "masks"], "does not fit the photograph"),
    "one frame": ([*FOUR, "--frames", "1"], "'1' is not a whole number in 3.."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(run, name):
    arguments, words = MISTAKES[name]
    status, said = run(*arguments)
    assert status == exp_runner.EXIT_USER_ERROR
    assert words in said.err and said.err.count("\n") == 1
    assert not Path("public_data").exists(), "nothing is left"


@pytest.mark.parametrize(("conf", "is_shrunk"), [((), False), (("--conf", "womask_cpu.conf"), True)])
def test_the_region_is_shrunk_for_confs_that_want_all_cameras_outside(monkeypatch, run, conf, is_shrunk):
    asked = []
    monkeypatch.setattr(pipeline, "prepare", lambda request, say: asked.append(request.cameras_outside) or True)
    conf = [PROGRAM_FOLDER / "confs" / word if word.endswith(".conf") else word for word in conf]
    status, said = run(*FOUR, *conf)
    assert (status, asked) == (0, [is_shrunk]), said.err

"""`--mode prepare` on the command line: what is wrong is said in one sentence, with exit status 2, at once."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import rendered_photographs

import exp_runner
from data.io.images import write_image
from data.prepare import pipeline
from models.commands.program import PROGRAM_FOLDER


def run(capsys, *arguments):
    status = exp_runner.main(["--mode", "prepare", *map(str, arguments)])
    return status, capsys.readouterr()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder of photographs, masks and what is neither."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "empty").mkdir()
    (folder / "text.mp4").write_text("not a video")
    rendered_photographs.write_photographs(folder / "two", 2)
    rendered_photographs.write_photographs(folder / "four", 4)
    (folder / "masks").mkdir()
    for index in range(4):
        write_image(folder / "masks" / f"photo_{index}.png", np.zeros((9, 9), np.uint8))
    return folder


@pytest.fixture(autouse=True)
def own_folder(inputs, tmp_path, monkeypatch):
    """A copy of them, to start from."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


MISTAKES = {
    "no images": (["--case", "a"], "give --images FOLDER"),
    "no case": (["--images", "two"], "give --case NAME"),
    "a path as case": (["--images", "two", "--case", "../a"], "give --case NAME, a plain name"),
    "missing": (["--images", "nowhere", "--case", "a"], "--images nowhere: no such folder or video"),
    "a long name": (["--images", "x" * 5000, "--case", "a"], "no such folder or video"),
    "not a video": (["--images", "text.mp4", "--case", "a"], "text.mp4: is not a video"),
    "no photographs": (["--images", "empty", "--case", "a"], "holds no .png, .jpg, .jpeg or .webp photographs"),
    "two photographs": (["--images", "two", "--case", "a"], "at least 3 are needed"),
    "a region in words": (["--images", "four", "--case", "a", "--roi", "a b c d"], '--roi "a b c d": give the centre'),
    "an endless region": (["--images", "four", "--case", "a", "--roi", "0 0 0 inf"], "give the centre and the radius"),
    "a region in the conf": (["--images", "four", "--case", "a", "--set", "dataset.roi=0 0 1"], "give the centre"),
    "no such masks": (["--images", "four", "--case", "a", "--masks", "nowhere"], "--masks nowhere: no such folder"),
    "a mask of another size": (["--images", "four", "--case", "a", "--masks", "masks"], "does not fit the photograph"),
    "one frame": (["--images", "two", "--case", "a", "--frames", "1"], "'1' is not a whole number in 3.."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(capsys, name):
    arguments, words = MISTAKES[name]
    status, said = run(capsys, *arguments)
    assert status == exp_runner.EXIT_USER_ERROR
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not Path("public_data").exists(), "nothing is left"


@pytest.mark.parametrize(("conf", "is_shrunk"), [((), False), (("--conf", "womask_cpu.conf"), True)])
def test_the_region_is_shrunk_for_confs_that_want_all_cameras_outside(monkeypatch, capsys, conf, is_shrunk):
    asked = []
    monkeypatch.setattr(pipeline, "prepare", lambda request, say: asked.append(request.cameras_outside) or True)
    conf = [PROGRAM_FOLDER / "confs" / word if word.endswith(".conf") else word for word in conf]
    status, said = run(capsys, "--images", "four", "--case", "a", *conf)
    assert (status, asked) == (0, [is_shrunk]), said.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "folder"),
    [
        ([], "public_data/corner"),
        (["--conf", "own.conf"], "here/corner"),
        (["--set", "dataset.data_dir=there/CASE_NAME"], "there/corner"),
    ],
)
def test_photographs_become_a_scene_that_the_conf_finds(capsys, tmp_path, flags, folder):
    (tmp_path / "own.conf").write_text(
        f'include required("{PROGRAM_FOLDER}/confs/womask.conf")\ndataset {{ data_dir = ./here/CASE_NAME }}\n'
    )
    rendered_photographs.write_photographs(tmp_path / "photos", 4)
    status, said = run(capsys, "--images", "photos", "--case", "corner", *flags)
    assert status == 0, said.err
    given = {"--conf": str(PROGRAM_FOLDER / "confs/fast.conf")} | dict([flags] if flags else [])
    setting = f" --set {given['--set']}" if "--set" in given else ""
    program = PROGRAM_FOLDER / "exp_runner.py"  # the user is outside its folder
    assert said.out.splitlines()[-1] == f"next: python {program} --conf {given['--conf']} --case corner{setting}"
    assert (tmp_path / folder / "cameras_sphere.npz").is_file()

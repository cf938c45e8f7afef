"""What lies in the current folder is read as photographs, never run as a module."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rendered_photographs

from data.io.child import run_apart
from data.io.search_path import safe_environment, without_current_folder

ROOT = Path(__file__).resolve().parents[1]
# Modules of the standard library, of installed packages and of the program, which it or its children import.
NAMES = ["multiprocessing", "json", "contextlib", "subprocess", "ctypes", "sqlite3", "numpy", "cv2", "pycolmap", "tqdm"]


def lay_out(folder, names):
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('{name}')\nraise SystemExit(9)\n")


def start(folder, program, *flags, search_path=""):
    environment = {**os.environ, "PYTHONPATH": search_path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(program), *flags]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


# sitecustomize in a folder of PYTHONPATH is run by the interpreter before any program, so it is not tested
@pytest.mark.cli
def test_nothing_is_imported_from_the_current_folder(tmp_path):
    rendered_photographs.write_photographs(tmp_path / "photos", 4)
    lay_out(tmp_path, [*NAMES, "data", "models"])
    prepare = ("--mode", "prepare", "--images", "photos", "--case", "corner")
    inspect = ("--conf", str(ROOT / "confs/womask.conf"), "--mode", "inspect", "--set", "general.base_exp_dir=./exp")
    inspect += ("--set", "dataset.data_dir=public_data/corner/prepare")  # COLMAP's, read in a process of its own
    for flags in (prepare, inspect):
        done = start(tmp_path, ROOT / "exp_runner.py", *flags, search_path=f"{os.pathsep}.")
        assert done.returncode == 0 and not (tmp_path / "ran").exists(), done.stderr


def search_path_of_child(report):
    code = "import sys; print(sys.path)"
    grandchild = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return sys.path, grandchild


def test_children_know_the_parents_modules_but_not_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(tmp_path), "/nowhere"]))
    for entry in ("", ".", str(tmp_path)):
        monkeypatch.syspath_prepend(entry)
    path, grandchild = run_apart(search_path_of_child, log=tmp_path / "log")
    assert path == without_current_folder(sys.path) and str(Path(__file__).parent) in path
    assert str(tmp_path) not in path and str(tmp_path) not in grandchild and "''" not in grandchild
    assert safe_environment()["PYTHONPATH"] == "/nowhere"


def wait_for_ever(report, file):
    Path(file).write_text(f"{os.getpid()}")
    time.sleep(600)


def is_alive(number):
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.cli
def test_a_child_goes_with_a_parent_that_is_killed(tmp_path):
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\nfrom pathlib import Path\n"
        "from data.io.child import run_apart; from test_search_path import wait_for_ever\n"
        f"run_apart(wait_for_ever, {str(tmp_path / 'number')!r}, log=Path({str(tmp_path / 'log')!r}))"
    )
    number, until = tmp_path / "number", time.monotonic() + 180

    def wait_while(holds):
        while holds():
            assert time.monotonic() < until
            time.sleep(0.02)

    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        wait_while(lambda: not number.exists() or not number.read_text())
        parent.kill()
    wait_while(lambda: is_alive(int(number.read_text())))

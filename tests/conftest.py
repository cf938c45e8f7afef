"""What every test may rely on."""

import ctypes
import os
import shutil

import pytest


@pytest.fixture
def openmp_threads():
    """A function that sets the threads of native operations; their number is what it was after the test."""
    openmp = ctypes.CDLL("libgomp.so.1")
    yield openmp.omp_set_num_threads
    openmp.omp_set_num_threads(int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))


@pytest.fixture(scope="session")
def prepared_scene(tmp_path_factory):
    """A folder in which a few photographs were prepared; not to be written to."""
    from preparations import N_VIEWS, request
    from rendered_photographs import write_photographs

    from data.prepare.pipeline import prepare

    folder = tmp_path_factory.mktemp("prepared")
    write_photographs(folder / "photos", N_VIEWS)
    assert prepare(request(folder), str)
    return folder


@pytest.fixture
def copied_scene(prepared_scene, tmp_path):
    """A copy of it that a test may change."""
    shutil.copytree(prepared_scene, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return tmp_path

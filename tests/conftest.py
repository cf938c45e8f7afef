"""Fixtures and settings of all tests, their markers, and the list of skipped tests.

A test of no kind of `pyproject.toml` is a `unit`. Workers of pytest-xdist share the cores, with one thread each.
"""

import ctypes
import os
import shutil
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

KINDS = ("cli", "slow", "browser", "alone")
# Files with few slow tests that train or compile for a minute; of the others the number of slow tests decides.
LONGEST = ("test_splats.py", "test_finite.py", "test_short_trainings.py", "test_kill.py")
if "PYTEST_XDIST_WORKER" in os.environ:  # before the first library that starts threads
    os.environ.setdefault("OMP_NUM_THREADS", "1")

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, by the programs that tests start, too


def pytest_itemcollected(item):
    """Give a test without a kind its own."""
    if not any(item.get_closest_marker(kind) for kind in KINDS):
        item.add_marker("unit")


def pytest_collection_modifyitems(items):
    """The slowest files first, so that no worker runs one alone at the end; the order is each worker's."""
    long = Counter(item.path for item in items if not item.get_closest_marker("unit"))
    items.sort(key=lambda item: (item.path.name not in LONGEST, -long[item.path]))


def pytest_runtest_setup(item):
    """Skip what needs a browser where there is none."""
    if item.get_closest_marker("browser"):
        from browsing import why_not

        if reason := why_not():
            pytest.skip(reason)


def pytest_terminal_summary(terminalreporter):
    """Say on one line what was skipped and why."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())
    )
    if reasons:
        terminalreporter.write_line("skipped: " + "; ".join(f"{count} ({reason})" for reason, count in reasons.items()))


@pytest.fixture(autouse=True)
def nothing_is_compiled_ahead(monkeypatch, request):
    """The tests' kernels are compiled; their many settings would each start the process that compiles ahead."""
    if request.path.name.startswith("test_reconstruct"):
        monkeypatch.setattr("models.commands.reconstruction.SCENE", Path("/nonexistent"))


@pytest.fixture
def quick_figures(monkeypatch):
    """Evaluations with fewer points and smaller pictures, for tests that do not need three digits of their figures."""
    from models.results import cover, evaluate, image_metrics, references

    for module in (evaluate, references):
        monkeypatch.setattr(module, "FRAME_SAMPLES", 2000)
    monkeypatch.setattr(evaluate, "against_truth", partial(evaluate.against_truth, samples=5000))
    monkeypatch.setattr(cover, "COVER_SAMPLES", 2000)
    monkeypatch.setattr(cover, "HEIGHT", 60)
    monkeypatch.setattr(image_metrics, "OUTLIER_SIDE", 12)


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

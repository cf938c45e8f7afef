"""Toolkits are found in their usual places and become one folder to build against; what is wrong is a sentence."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from cuda_machines import (
    CODES_12,
    COMPILE,
    bare_machine,
    planned,
    write_headers,
    write_nvcc,
    write_toolkit,
    write_wheels_12,
    write_wheels_13,
)

from models.machine.cuda import detect
from models.machine.cuda import home as cuda_home
from models.machine.cuda.choice import LIBRARIES
from models.machine.cuda.home import HomeError, prepare


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """See `bare_machine`."""
    return bare_machine(tmp_path, monkeypatch)


def test_a_whole_toolkit_is_found_once_for_all_its_names(machine, tmp_path):
    root = write_toolkit(tmp_path / "local" / "cuda-12.4", "12.4", CODES_12)
    (tmp_path / "local" / "cuda").symlink_to(root)
    (found,) = machine(CUDA_HOME=str(root), PATH=str(root / "bin"))
    assert found.nvcc == str(root / "bin" / "nvcc") and found.release == (12, 4) and found.codes == CODES_12
    assert found.missing == () and set(found.libraries) == set(LIBRARIES)


def test_the_newest_version_comes_first_but_for_those_the_user_names(machine, tmp_path):
    for release in ("9.2", "12.4", "12.10", "13.0"):
        write_toolkit(tmp_path / "local" / f"cuda-{release}", release)
    own = write_toolkit(tmp_path / "own", "12.1")
    assert [found.release for found in machine()] == [(13, 0), (12, 10), (12, 4), (9, 2)]
    assert machine(CUDA_HOME=str(own))[0].release == (12, 1)
    assert machine(nvcc_path=str(own / "bin" / "nvcc"))[0].release == (12, 1)
    assert machine(PATH=str(own / "bin"))[0].release == (12, 1)


def test_a_toolkit_is_completed_by_packages_of_its_own_version_only(machine, tmp_path):
    root = tmp_path / "local" / "cuda-12.4"
    write_nvcc(root / "bin" / "nvcc", "12.4", CODES_12)
    write_headers(root / "include", "cuda_runtime.h", major=12)
    write_wheels_13(tmp_path / "thirteen", with_nvcc=False)
    (found,) = machine(tmp_path / "thirteen")
    assert "libcublas.so" in found.missing and "libcudart.so" in found.missing
    write_wheels_12(tmp_path / "twelve")
    (found,) = machine(tmp_path / "thirteen", tmp_path / "twelve")
    assert found.missing == () and found.libraries["cublas"].endswith("libcublas.so.12")
    assert "thirteen" not in "".join([*found.libraries.values(), *found.headers.values()])


def test_a_home_of_ours_is_no_toolkit_however_it_is_named(machine, tmp_path):
    write_toolkit(tmp_path / "local" / "cuda", "12.4", CODES_12)
    (toolkit,) = machine()
    ours = prepare(planned(toolkit), tmp_path / "cache", "g++")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(ours.nvcc)
    for way in ({"nvcc_path": ours.nvcc}, {"CUDA_HOME": str(ours.folder)}, {"PATH": str(tmp_path / "bin")}):
        assert machine(**way) == [toolkit], way


# the home


@pytest.fixture
def plan(machine, tmp_path):
    """A plan with pip's packages of CUDA 13."""
    site = tmp_path / "site-packages"
    write_wheels_13(site)
    return planned(machine(site)[0])


def test_a_home_has_what_jittor_looks_for_and_is_made_once(plan, tmp_path):
    assert plan.toolkit.release == (13, 0) and plan.toolkit.missing == ()  # pip's packages are a toolkit
    assert plan.toolkit.libraries["cublas"].endswith("nvidia/cu13/lib/libcublas.so.13")
    made = prepare(plan, tmp_path / "cache", "g++")
    for name in LIBRARIES:
        assert (made.folder / "lib64" / f"lib{name}.so").resolve().is_file()
    assert (made.folder / "lib64" / "libcublas.so.13").is_file()  # the name that is recorded in what is linked to it
    for name in ("cuda_runtime.h", "cublas_v2.h", "curand.h", "npp.h", "cub/cub.cuh"):
        assert (made.folder / "include" / name).is_file()
    assert not Path(made.nvcc).is_symlink() and os.access(made.nvcc, os.X_OK)
    calls = Path(plan.toolkit.nvcc).with_name("calls")
    before = calls.read_text()
    assert prepare(plan, tmp_path / "cache", "g++") == made and calls.read_text() == before
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [made.folder.name]


@pytest.mark.cli
def test_what_the_compiler_is_told_is_what_the_toolkit_and_the_card_need(plan, tmp_path):
    made = prepare(plan, tmp_path, "g++")
    calls = Path(plan.toolkit.nvcc).with_name("calls")
    calls.write_text("")
    jittors = ["-std=c++14", "-ccbin=/usr/bin/g++-99", "-include", "for/gpp.h", "-arch=compute_90", "-code=sm_90"]
    subprocess.run([made.nvcc, *jittors, "a b.cu", '-I"x"'], check=True)
    assert calls.read_text() == '-gencode arch=compute_90,code=sm_90 -ccbin g++ -std=c++17 a b.cu -I"x"\n'
    shown = subprocess.run([made.nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    assert "release 13.0" in shown


SAID = {
    "#error -- unsupported GNU version! gcc later than 12": "install g++-12",
    "nvcc fatal : Could not open output file /none/tmpxft_1": "or set TMPDIR to another folder",
}
ENDS = {f"echo '{said}' >&2; exit 1": words for said, words in SAID.items()} | {"exit 3": "status 3"}


@pytest.mark.parametrize(("says", "words"), ENDS.items(), ids=ENDS.values())
def test_a_compiler_that_compiles_nothing_is_a_sentence_and_leaves_nothing(machine, tmp_path, says, words):
    root = write_toolkit(tmp_path / "local" / "cuda")
    write_nvcc(root / "bin" / "nvcc", compile_with=says)
    with pytest.raises(HomeError) as caught:
        prepare(planned(machine()[0]), tmp_path / "cache", "g++")
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def folder_of_two_at_once(root, place):
    """Run in a process of its own."""
    toolkit = next(found for found in detect.toolkits({"CUDA_HOME": str(root)}, []) if str(root) in found.nvcc)
    return prepare(planned(toolkit), place, "g++").folder


@pytest.mark.cli
def test_two_first_starts_at_once_make_one_home(tmp_path):
    root = write_toolkit(tmp_path / "cuda")
    write_nvcc(root / "bin" / "nvcc", compile_with=f"sleep 0.5; {COMPILE}")
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        made = [pool.submit(folder_of_two_at_once, root, tmp_path / "cache") for _ in range(2)]
    assert len({one.result() for one in made}) == 1
    assert len((root / "bin" / "calls").read_text().splitlines()) == 1  # one of them tried the compiler


# the trial


def well(report, gpu):
    """A task that ends as it should."""


def badly(report, gpu):
    """A task that raises."""
    raise RuntimeError(f"no kernel image for card {gpu}")


def fatally(report, gpu):
    """A task that aborts its process, as some libraries do, after the words in the file that LAST_WORDS names."""
    sys.stderr.write("first an error of an earlier line\n" + Path(os.environ["LAST_WORDS"]).read_text())
    sys.stderr.flush()
    os.abort()


# The output of a library before it aborts, the reported part of it, and the remedy.
CODE = "[f 1122 17:57:37.828819 64 helper_cuda.h:128] CUDA error at /a/src/array_op.cc:33  code="
NEWER = "36( cudaErrorCallRequiresNewerDriver ) cudaMalloc(&p, n)"
OLDER_TOOLKIT = ": update the driver, or install a CUDA toolkit that is no newer than the driver, or use --device cpu"
REPORT = ": report it with that file, or use --device cpu"
FAILURES = [
    (f"ended\n  what():  \x1b[38;5;1m{CODE}{NEWER}\x1b[m\n", f"at array_op.cc:33 code={NEWER} (see ", OLDER_TOOLKIT),
    ("error: /tmp/a.o: No space left on device\n", "error: a.o: No space left", ": free some disk space, or use"),
    ("", "status -6, first an error of an earlier line (see", REPORT),
]


@pytest.mark.parametrize(("said", "told", "remedy"), FAILURES)
def test_a_trial_that_fails_tells_the_last_words_and_what_helps(plan, tmp_path, monkeypatch, said, told, remedy):
    monkeypatch.setenv("LAST_WORDS", str(tmp_path / "words"))
    (tmp_path / "words").write_text(said)
    failure = cuda_home.failure(prepare(plan, tmp_path, "g++"), fatally, 0)
    assert told in failure and remedy in failure and "\n" not in failure and "\x1b" not in failure, failure


def test_a_trial_is_made_until_it_succeeds_and_then_no_more(plan, tmp_path):
    made = prepare(plan, tmp_path, "g++")
    for _ in range(2):
        failure = cuda_home.failure(made, badly, 2)
        assert "no kernel image for card 2" in failure and "trial.log" in failure and failure.endswith(REPORT)
    assert cuda_home.failure(made, well, 0) == cuda_home.failure(made, badly, 0) == ""

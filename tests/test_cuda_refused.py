"""Toolkits that cannot be used: another one is selected, and the reason is reported."""

import pytest
from cuda_machines import CODES_12, COMPILE, bare_machine, driver, facts, write_nvcc, write_toolkit

from models.machine.cuda.choice import PIP_ALL
from models.machine.cuda.home import ready

TOO_NEW = "echo '#error -- unsupported GNU version! gcc versions later than 12 are not supported!' >&2; exit 1"
MISMATCH = "echo 'error: #error \"CUDA compiler and CUDA toolkit headers are incompatible\"' >&2; exit 1"


@pytest.fixture
def started(tmp_path, monkeypatch):
    """A function that starts on a card with what lies there, anew each time; no g++ of any number is there."""
    search = bare_machine(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path / 'compilers'}:/bin/none")
    (tmp_path / "compilers").mkdir()
    for tool in ("sh", "dirname"):
        (tmp_path / "compilers" / tool).symlink_to(f"/bin/{tool}")

    def start(**environment):
        found = facts(driver((13, 9)), *search(tmp_path / "lib" / "site-packages", **environment))
        monkeypatch.setattr("models.machine.cuda.home.gather", lambda environment: found)
        ready.cache_clear()
        told = ready(0, tmp_path / "cache", "/usr/bin/g++")
        ready.cache_clear()
        return told

    return start


def broken(root, says=MISMATCH, release="12.4"):
    """A toolkit whose compiler says that; each time it is asked to compile a line is added to `tried` beside."""
    write_toolkit(root, release, CODES_12)
    write_nvcc(root / "bin" / "nvcc", release, CODES_12, f"echo >> '{root}.tried'; {says}")
    return root


def tries(root):
    """How often."""
    file = root.with_name(f"{root.name}.tried")
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_the_next_toolkit_that_fits_is_taken(started, tmp_path):
    first = broken(tmp_path / "first", TOO_NEW)
    write_toolkit(tmp_path / "local" / "cuda-13.0")
    assert started(CUDA_HOME=str(first)).home.plan.toolkit.release == (13, 0) and tries(first) == 1


def test_where_none_is_left_the_reasons_are_told_the_first_one_first(started, tmp_path):
    first, second = broken(tmp_path / "first", TOO_NEW), broken(tmp_path / "local" / "cuda-12.6", release="12.6")
    told = started(CUDA_HOME=str(first)).reason
    words = ["H100 (capability 9.0) is not used, CUDA 12.4 (", "does not support /usr/bin/g++, which is too new"]
    words += ["and CUDA 12.6 (", "headers are incompatible", f": install g++-12, or {PIP_ALL}, or use --device cpu"]
    places = [told.find(word) for word in words]
    assert -1 not in places and places == sorted(places), told
    assert (tries(first), tries(second)) == (1, 1)


def test_an_older_compiler_on_the_path_is_taken_for_what_nvcc_compiles(started, tmp_path):
    for number in (9, 11, 13):
        (tmp_path / "compilers" / f"g++-{number}").symlink_to("/bin/true")
    root = broken(tmp_path / "local" / "cuda", f'case "$*" in *"-ccbin "*g++-11*) {COMPILE} ;; *) {TOO_NEW} ;; esac')
    made = started().home
    assert f"-ccbin '{tmp_path}/compilers/g++-11'" in (made.folder / "bin" / "nvcc").read_text()
    assert tries(root) == 2  # 13 is newer than what it says it takes


def test_what_was_mended_is_used_at_once(started, tmp_path):
    root = broken(tmp_path / "local" / "cuda")
    assert started().home is None
    write_nvcc(root / "bin" / "nvcc", "12.4", CODES_12)
    assert started().home is not None and tries(root) == 1


def test_a_fault_of_the_machine_is_told_once(started, tmp_path):
    says = "echo 'x.cudafe1.cpp: No space left on device' >&2; exit 1"
    first, second = broken(tmp_path / "first", says), broken(tmp_path / "local" / "cuda")
    for count in (1, 2):
        told = started(CUDA_HOME=str(first)).reason
        assert told.endswith(": free some space, or set TMPDIR to another folder, or use --device cpu")
        assert (tries(first), tries(second)) == (count, 0)

"""The mended copy of Jittor: made once, of the right version only, and the one that is imported."""

import importlib.metadata
import os
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from data.errors import UserError
from models.machine import jittor_source, toolchain
from models.machine.backend import jt
from models.machine.jittor_source import CHANGES, UNUSED_FOLDERS

ROOT = Path(__file__).resolve().parents[1]


def made(folder):
    """The copies below a folder of caches."""
    return sorted(path.name for path in folder.iterdir())


def test_the_imported_jittor_is_the_copy_and_has_the_changes():
    folder = Path(jt.__file__).parents[1]
    assert folder.parent == toolchain.cache_folder() and importlib.metadata.version("jittor") in folder.name
    for change in CHANGES:
        assert change.new in (folder / change.file).read_text(encoding="utf-8")
    assert not any((folder / "jittor" / name).exists() for name in UNUSED_FOLDERS)


def test_a_copy_is_made_once_also_by_two_at_a_time_and_from_a_read_only_package(monkeypatch, tmp_path):
    source = tmp_path / "site"
    for name, text in (("jittor/a.py", "one two"), ("jittor/src/test/b.cc", ""), ("jittor_utils/c.py", "")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    for path in (source, *source.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.setattr(jittor_source, "installed", lambda: source)
    monkeypatch.setattr(jittor_source, "CHANGES", (jittor_source.Change("jittor/a.py", "two", "three"),))
    caches = tmp_path / "caches"
    caches.mkdir()
    (caches / f"{jittor_source.SCRATCH}left").mkdir()  # by a process that was killed
    with ThreadPoolExecutor(4) as threads:
        folders = set(threads.map(lambda _: jittor_source.mended(caches), range(8)))
    (folder,) = folders
    assert made(caches) == [folder.name]
    assert (folder / "jittor/a.py").read_text() == "one three" and not (folder / "jittor/src/test").exists()
    assert all(os.stat(path).st_mode & 0o600 == 0o600 for path in folder.rglob("*"))
    monkeypatch.setattr(jittor_source, "CHANGES", (jittor_source.Change("jittor/a.py", "one", "three"),))
    assert jittor_source.mended(caches) != folder


def test_another_version_of_jittor_is_named(monkeypatch, tmp_path):
    change = jittor_source.Change("jittor_utils/lock.py", "lock", "key", times=1000)
    monkeypatch.setattr(jittor_source, "CHANGES", (change,))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.3.12.4")
    with pytest.raises(UserError, match=r"^Jittor 1\.3\.12\.4 has another jittor_utils/lock.py .*jittor==1\.3\.11"):
        jittor_source.mended(tmp_path)
    assert made(tmp_path) == []
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(UserError, match="^Jittor is not installed in .*pip install"):
        jittor_source.mended(tmp_path)


def test_a_jittor_that_was_imported_before_is_reported(monkeypatch):
    own = types.SimpleNamespace(__file__="/elsewhere/jittor/__init__.py")
    monkeypatch.setitem(sys.modules, "jittor", own)
    with pytest.raises(UserError, match="^jittor was imported before this program.*import neus .*first"):
        jittor_source.use(toolchain.cache_folder())


def test_arrays_of_every_type_are_copied_or_refused():
    for name in ("bool", "int8", "uint8", "int16", "uint16", "int32", "float16", "float32"):
        values = np.arange(6).astype(name).reshape(2, 3)
        for given in (values, values.T, values[:, ::2]):
            np.testing.assert_array_equal(jt.array(given).numpy(), given)
    for name in ("longdouble", ">f4", "complex64", "U3", "M8[s]"):
        with pytest.raises(RuntimeError, match="Numpy"):
            jt.array(np.zeros(3, name))
    rows = jt.array(np.arange(12.0).reshape(4, 3).astype(np.float32))
    for kind in (np.int8, np.uint64, np.int64, np.float32):
        np.testing.assert_array_equal(rows[kind(2)].numpy(), [6, 7, 8])


CALLS = """
from models.machine.backend import jt
x = jt.array([1.0, float("nan"), float("inf")])
print([jt.isfinite(x + k).numpy().tolist() for k in range(3)][0], jt.searchsorted(jt.arange(4), jt.array([2])).item())
"""
FAULT = """
import ctypes
from models.machine.backend import jt
jt.sync([jt.ones((3, 3)) * k + 1 for k in range(3)])
ctypes.string_at(8)
"""


def run_python(program, **variables):
    call = [sys.executable, "-c", program]
    return subprocess.run(call, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.mark.cli
def test_a_kernel_that_calls_python_is_compiled_in_a_thread():
    done = run_python(CALLS)
    assert (done.returncode, done.stdout.split()) == (0, ["[True,", "False,", "False]", "2"]), done.stderr


@pytest.mark.cli
def test_a_process_frees_nothing_twice_at_its_end():
    done = run_python("from models.machine.backend import jt; jt.ones(3).sync()", PYTHONMALLOC="debug")
    assert (done.returncode, done.stderr) == (0, "")
    done = run_python(FAULT)
    assert done.returncode == 1 and "double free" not in done.stderr and "Segfault" in done.stderr

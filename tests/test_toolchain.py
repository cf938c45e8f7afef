"""What the machine lacks is told in one sentence that names the package."""

import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from data.errors import UserError
from models.machine import isa, toolchain

ROOT = Path(__file__).resolve().parents[1]
VERSION = namedtuple("Version", ("major", "minor"))
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def complaint(check=toolchain.check):
    with pytest.raises(UserError) as caught:
        check()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def executable(path, script):
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_wrong_versions_compilers_and_headers_are_named_with_a_remedy(monkeypatch, tmp_path):
    for minor in (10, 15):
        with monkeypatch.context() as patch:
            patch.setattr(toolchain.sys, "version_info", VERSION(3, minor))
            sentence = complaint()
            assert sentence.startswith(f"Python 3.{minor} ") and "3.11 to 3.14" in sentence
    with monkeypatch.context() as patch:
        patch.setattr(toolchain.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
        sentence = complaint()
        assert str(tmp_path / "Python.h") in sentence and f"install {PYTHON}-dev" in sentence
    monkeypatch.setenv("cc_path", "no-such-compiler")
    sentence = complaint()
    assert "no-such-compiler" in sentence and "unset cc_path" in sentence
    monkeypatch.delenv("cc_path")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install g++" in complaint()


def test_the_first_level_of_threads_counts(monkeypatch):
    for text, count in (("", 0), (" ", 0), ("4", 4), ("4,2", 4), (" 2 , 1", 2)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        toolchain.check_environment()
        assert toolchain.threads(text) == count


BAD_VARIABLES = {
    "OMP_NUM_THREADS": ["abc", "4,", "0", "1000000"],
    "cc_path": ["/bin/false", "with space/g++"],
    "cache_name": ["", "../x"],
    "HOME": [".", "/proc/none"],
    "JITTOR_HOME": ["/dev/null"],
}


@pytest.mark.parametrize("name", BAD_VARIABLES)
def test_a_variable_that_a_library_would_stumble_over_is_named(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    executable(tmp_path / "with space/g++", 'exec g++ "$@"')
    monkeypatch.delenv("JITTOR_HOME", raising=False)  # what is loaded already has set it
    for text in BAD_VARIABLES[name]:
        monkeypatch.setenv(name, text)
        assert name in complaint(toolchain.check_environment)


def started(tmp_path, *flags, before=(), **changes):
    """The program on the small conf, into a folder that is not there yet."""
    conf = ["--conf", str(ROOT / "confs/debug.conf"), "--set", f"general.base_exp_dir={tmp_path / 'new'}"]
    call = [*before, sys.executable, str(ROOT / "exp_runner.py"), *conf, *flags]
    return subprocess.run(call, env=os.environ | changes, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.cli
@pytest.mark.parametrize(("flag", "kib"), [("-v", 300000), ("-d", 100000)])
def test_a_limit_below_what_libraries_take_is_one_sentence(flag, kib, tmp_path):
    ended = started(tmp_path, before=["bash", "-c", f'ulimit {flag} {kib}; exec "$@"', "bash"])
    assert ended.returncode == 2 and f"ulimit {flag} {kib}: " in ended.stderr and ended.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.cli
def test_what_libraries_read_of_the_environment_ends_nothing(tmp_path):
    names = ("TQDM_MININTERVAL", "NUMPY_MADVISE_HUGEPAGE", "NPY_PROMOTION_STATE", "OPENCV_FOR_THREADS_NUM")
    ended = started(tmp_path, "--mode", "inspect", OPENCV_IO_MAX_IMAGE_PIXELS="10", **dict.fromkeys(names, "abc"))
    assert ended.returncode == 0, ended.stderr


def test_each_compiler_has_one_cache(monkeypatch, tmp_path):
    executable(tmp_path / "bin" / "g++", "true")
    (tmp_path / "link").symlink_to("bin")
    monkeypatch.delenv("cc_path", raising=False)
    seen = []
    for folder in ("bin", "link"):
        monkeypatch.setenv("PATH", str(tmp_path / folder))
        seen.append((toolchain.compiler(), toolchain.cache_name()))
    assert seen[0] == seen[1] == (str(tmp_path / "bin/g++"), seen[0][1])
    monkeypatch.setattr(toolchain, "USUAL_COMPILER", seen[0][0])
    monkeypatch.setattr(toolchain, "python_config", lambda: str(toolchain.config_beside()))
    assert toolchain.cache_name() == f"{toolchain.CACHE_NAME}-{isa.level().name}" != seen[0][1]

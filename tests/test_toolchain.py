"""What the machine lacks is told in one sentence that names the package."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from data.errors import UserError
from models.machine import environment, isa, toolchain

ROOT = Path(__file__).resolve().parents[1]
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
    for minor in (10, 13):
        with monkeypatch.context() as patch:
            patch.setattr(
                toolchain, "sys", SimpleNamespace(version_info=_Version(3, minor), base_prefix=sys.base_prefix)
            )
            sentence = complaint()
            assert sentence.startswith(f"Python 3.{minor} ") and "3.11" in sentence and "3.12" in sentence
    with monkeypatch.context() as patch:
        patch.setattr(importlib.metadata, "version", {"numpy": "2.0.0"}.__getitem__)
        assert 'pip install "numpy<2"' in complaint()
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


class _Version(NamedTuple):
    """A sys.version_info of two numbers."""

    major: int
    minor: int


def test_the_first_level_of_threads_counts(monkeypatch):
    for text, count in (("", 0), (" ", 0), ("4", 4), ("4,2", 4), (" 2 , 1", 2)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        toolchain.check_environment()
        assert toolchain.threads(text) == count


BAD_VARIABLES = {
    "OMP_NUM_THREADS": ["abc", "4,", "0", "1000000"],
    "log_v": ["", "-1"],
    "cc_flags": ["-foo", "-O2 -ffast-math", "-Ofast", "-mrecip=all"],
    "kernel_flags": ["-ffinite-math-only"],
    "cc_path": ["/bin/true", "/bin/false", "with space/g++"],
    "use_cuda": ["yes"],
    "cache_name": ["", "../x", "a b", "\x1b"],
    "HOME": ["", ".", "/proc/none"],
    "JITTOR_HOME": ["/dev/null", "a/" + "x" * 300],
}


@pytest.mark.parametrize("name", BAD_VARIABLES)
def test_a_variable_that_a_library_would_stumble_over_is_named(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    executable(tmp_path / "with space/g++", 'exec g++ "$@"')
    monkeypatch.delenv("JITTOR_HOME", raising=False)  # what is loaded already has set it
    for text in BAD_VARIABLES[name]:
        monkeypatch.setenv(name, text)
        assert name in complaint(toolchain.check_environment)


def test_the_device_is_not_chosen_by_a_variable(monkeypatch):
    before = dict(os.environ)
    monkeypatch.setattr(os, "environ", {**before, "use_cuda": "1", "no_grad": "1", "log_v": "0"})
    environment.tell(None)
    assert not {"use_cuda", "no_grad"} & set(os.environ) and os.environ["log_v"] == "0"


def started(tmp_path, *flags, before=(), **changes):
    """The program on the small conf, into a folder that is not there yet."""
    conf = ["--conf", str(ROOT / "confs/debug.conf"), "--set", f"general.base_exp_dir={tmp_path / 'new'}"]
    call = [*before, sys.executable, str(ROOT / "exp_runner.py"), *conf, *flags]
    return subprocess.run(call, env=os.environ | changes, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.cli
@pytest.mark.parametrize(("flag", "kib"), [("-v", 300000), ("-v", 1200000), ("-d", 100000)])
def test_a_limit_below_what_libraries_take_is_one_sentence(flag, kib, tmp_path):
    ended = started(tmp_path, before=["bash", "-c", f'ulimit {flag} {kib}; exec "$@"', "bash"])
    assert ended.returncode == 2 and f"ulimit {flag} {kib}: " in ended.stderr and ended.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.cli
def test_what_libraries_read_of_the_environment_ends_nothing(tmp_path):
    names = ("TQDM_MININTERVAL", "NUMPY_MADVISE_HUGEPAGE", "NPY_PROMOTION_STATE", "OPENCV_IO_MAX_IMAGE_WIDTH")
    names += ("OPENCV_FOR_THREADS_NUM", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION")
    ended = started(tmp_path, "--mode", "inspect", OPENCV_IO_MAX_IMAGE_PIXELS="10", **dict.fromkeys(names, "abc"))
    assert ended.returncode == 0, ended.stderr


def test_a_home_that_jittor_cannot_remember_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cache/jittor").mkdir(parents=True)
    for content in ("", "{", "1", "[" * 100000):
        (tmp_path / ".cache/jittor/config.json").write_text(content)
        with pytest.raises(UserError, match=r"config\.json: .* delete it"):
            toolchain.check_environment()


@pytest.mark.cli
def test_a_home_that_was_set_for_another_run_is_not_used(tmp_path):
    homes = [tmp_path / "other", tmp_path / "home"]
    program = "import os; from models.machine import environment; environment.tell(None)\n"
    program += "import jittor_utils; print(jittor_utils.home())"
    variables = os.environ | {"HOME": str(homes[1]), "PYTHONPATH": str(ROOT)}
    variables.pop("JITTOR_HOME", None)
    for home, more in zip(homes, ({"JITTOR_HOME": str(homes[0])}, {}), strict=True):
        home.mkdir(exist_ok=True)
        told = subprocess.run([sys.executable, "-c", program], env=variables | more, capture_output=True, text=True)
        assert told.stdout.split()[-1] == str(home)


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

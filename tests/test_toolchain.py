"""What the machine lacks is told in one sentence that names the package."""

import importlib.metadata
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from data.errors import UserError
from models.machine import environment, isa, toolchain

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def complaint():
    with pytest.raises(UserError) as caught:
        toolchain.check()
    sentence = str(caught.value)
    assert "\n" not in sentence and sentence
    return sentence


def executable(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# compiler, headers, versions


@pytest.mark.parametrize("version", [(3, 10), (3, 13), (3, 14)])
def test_a_python_that_jittor_does_not_run_on_is_named_with_those_it_does(monkeypatch, version):
    fake = SimpleNamespace(version_info=_Version(*version), base_prefix=sys.base_prefix)
    monkeypatch.setattr(toolchain, "sys", fake)
    sentence = complaint()
    assert sentence.startswith(f"Python {version[0]}.{version[1]} ") and "3.11" in sentence and "3.12" in sentence


@pytest.mark.parametrize("version", ["2.0.0", "2.3.1"])
def test_numpy_two_is_refused_with_the_command_that_mends_it(monkeypatch, version):
    monkeypatch.setattr(importlib.metadata, "version", {"numpy": version}.__getitem__)
    assert 'pip install "numpy<2"' in complaint()


def test_a_missing_compiler_is_named_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("cc_path", "no-such-compiler")
    sentence = complaint()
    assert "no-such-compiler" in sentence and "unset cc_path" in sentence
    monkeypatch.delenv("cc_path")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install g++" in complaint()


def test_missing_headers_are_named_with_their_package(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    sentence = complaint()
    assert str(tmp_path / "Python.h") in sentence and f"install {PYTHON}-dev" in sentence


class _Version(tuple):
    """A sys.version_info of two numbers."""

    def __new__(cls, major, minor):
        return super().__new__(cls, (major, minor))

    major, minor = property(lambda self: self[0]), property(lambda self: self[1])


# the environment


@pytest.mark.parametrize(("text", "count"), [("", 0), (" ", 0), ("4", 4), ("4,2", 4), (" 2 , 1", 2)])
def test_the_first_level_of_threads_counts(text, count, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    toolchain.check_environment()
    assert toolchain.threads(text) == count


BAD_VARIABLES = {
    "OMP_NUM_THREADS": ["abc", "4,", "0", "-1", "1e3", "٣", "1000000", "4;2"],
    "log_v": ["", "abc", "-1"],
    "cc_flags": ["-foo", "-O2 -ffast-math", "-Ofast", "-mrecip=all"],
    "kernel_flags": ["-foo", "-ffinite-math-only", "-Ofast"],
    "cc_path": ["/bin/true", "/bin/false", "with space/g++"],
    "use_cuda": ["yes"],
    "cache_name": ["", "..", "../x", "a b", "\x1b"],
    "HOME": ["", ".", "/proc/none"],
    "JITTOR_HOME": ["/proc/none", "/dev/null", "a\0"[:1] + "/" + "x" * 300],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD_VARIABLES.items() for text in texts])
def test_a_variable_that_a_library_would_stumble_over_is_named(name, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    executable(tmp_path / "with space/g++", 'exec g++ "$@"')
    monkeypatch.delenv("JITTOR_HOME", raising=False)  # what is loaded already has set it
    monkeypatch.setenv(name, text)
    with pytest.raises(UserError, match=name) as caught:
        toolchain.check_environment()
    assert "\n" not in str(caught.value)


def test_the_device_is_not_chosen_by_a_variable(monkeypatch):
    before = dict(os.environ)
    monkeypatch.setattr(os, "environ", {**before, "use_cuda": "1", "no_grad": "1", "log_v": "0"})
    environment.tell(None)
    assert not {"use_cuda", "no_grad"} & set(os.environ) and os.environ["log_v"] == "0"


@pytest.mark.cli
@pytest.mark.parametrize(("flag", "kib"), [("-v", 300000), ("-v", 900000), ("-v", 1200000), ("-d", 100000)])
def test_a_limit_below_what_the_libraries_take_is_one_sentence_and_leaves_nothing(flag, kib, tmp_path):
    limited = f'ulimit {flag} {kib}; exec "$@"'
    call = [sys.executable, str(ROOT / "exp_runner.py"), "--set", f"general.base_exp_dir={tmp_path / 'new'}"]
    ended = subprocess.run(["bash", "-c", limited, "bash", *call], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 2 and f"ulimit {flag} {kib}: " in ended.stderr and ended.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.cli
def test_what_libraries_read_of_the_environment_ends_nothing(tmp_path):
    hostile = {"TQDM_MININTERVAL": "abc", "NUMPY_MADVISE_HUGEPAGE": "abc", "NPY_PROMOTION_STATE": "abc"}
    hostile |= {"OPENCV_IO_MAX_IMAGE_PIXELS": "10", "OPENCV_IO_MAX_IMAGE_WIDTH": "abc", "OPENCV_FOR_THREADS_NUM": "abc"}
    hostile |= {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "abc"}
    conf = ["--conf", str(ROOT / "confs/debug.conf"), "--set", f"general.base_exp_dir={tmp_path}"]
    call = [sys.executable, str(ROOT / "exp_runner.py"), *conf, "--mode", "inspect"]
    ended = subprocess.run(call, env=os.environ | hostile, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("content", ["", "{", "[]", "1", "[" * 100000])
def test_a_home_that_jittor_cannot_remember_is_named(content, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cache/jittor").mkdir(parents=True)
    (tmp_path / ".cache/jittor/config.json").write_text(content)
    with pytest.raises(UserError, match=r"config\.json: .* delete it"):
        toolchain.check_environment()


@pytest.mark.cli
def test_a_home_that_was_set_for_another_run_is_not_used(monkeypatch, tmp_path):
    for name in ("home", "other"):
        (tmp_path / name).mkdir()
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from models.machine import environment\n"
        "environment.tell(None)\n"
        "import jittor_utils; print(jittor_utils.home())"
    )
    environment = os.environ | {"HOME": str(tmp_path / "home")}
    environment.pop("JITTOR_HOME", None)
    homes = [
        subprocess.run(
            [sys.executable, "-c", program, str(ROOT)], env=environment | more, capture_output=True, text=True
        ).stdout.split()[-1]
        for more in ({"JITTOR_HOME": str(tmp_path / "other")}, {})
    ]
    assert homes == [str(tmp_path / "other"), str(tmp_path / "home")]


def test_one_folder_by_two_names_is_one_compiler_and_two_compilers_have_two_caches(monkeypatch, tmp_path):
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

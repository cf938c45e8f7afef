"""Jittor's cache: a library is complete or missing, whatever kills the linker."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from models.machine import environment, toolchain

CACHE = "jt1.3.11/g++/py/Linux/cpu/hash"


@pytest.fixture
def library(tmp_path):
    """A library as Jittor stores it in its cache, with the key by which it is taken for complete."""
    folder = tmp_path / CACHE / "neus" / "jit"
    folder.mkdir(parents=True)
    (tmp_path / "a.cc").write_text('extern "C" int two() { return 2; }\n')
    path = folder / "a_op.so"
    link(tmp_path, path)
    path.with_name("a_op.so.key").write_text("key")
    return path


def link(folder, path):
    command = [toolchain.compiler(), "-shared", "-fPIC", str(folder / "a.cc"), "-o", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_a_linker_that_is_killed_leaves_the_library_as_it_was(library, tmp_path, monkeypatch):
    monkeypatch.setenv("COMPILER_PATH", "")
    whole = library.read_bytes()
    for _ in range(2):  # the second time, our own linker is found damaged
        environment.use_linker(toolchain.compiler(), tmp_path / "caches")
        assert link(tmp_path, library) == 0 and library.read_bytes() == whole
        Path(os.environ["COMPILER_PATH"], "ld").write_bytes(b"")
    dying = tmp_path / "dying"
    monkeypatch.setattr(environment, "shutil", SimpleNamespace(which=lambda _: str(dying)))
    for end in ("kill -9 $$", "exit 1"):
        dying.write_text(f'#!/bin/sh\nfor name; do :; done\nprintf half > "$name"\n{end}\n')
        dying.chmod(0o755)
        environment.use_linker(toolchain.compiler(), tmp_path / "caches")
        assert link(tmp_path, library) != 0 and library.read_bytes() == whole
        assert {path.name for path in library.parent.iterdir()} == {"a_op.so", "a_op.so.key"}


def test_jittor_links_with_it_for_the_whole_run(tmp_path, monkeypatch):
    monkeypatch.setenv("JITTOR_HOME", str(tmp_path))
    monkeypatch.setenv("COMPILER_PATH", "/of/the/user")
    with environment.jittor_environment(None, 0):
        environment.tell(None)  # as a program that starts itself again
    ours, theirs = os.environ["COMPILER_PATH"].split(":")
    assert theirs == "/of/the/user" and os.access(f"{ours}/ld", os.X_OK)

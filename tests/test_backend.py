"""The import of Jittor: its effects on the process, the device, and matrix products by oneDNN."""

import dataclasses
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forms import only_on_the_cpu

from data.errors import UserError
from models.machine import backend, jittor_import
from models.machine.backend import jt

ROOT = Path(__file__).resolve().parents[1]

# Asserted in a process of its own: pytest replaces some of these itself.
AFTER_IMPORT = """
import multiprocessing, os, signal, ssl, subprocess, sys
before = sys.excepthook, sys.exit, sys.getrecursionlimit()
import models.config, models.machine.backend, models.structs
assert "jittor" not in sys.modules
import models.fields.sdf, models.methods.neus, models.rendering.losses
environment = dict(os.environ)
from models.machine.backend import jt
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "SIGINT"
try:  # a child that is killed must not end this process, as Jittor's own handler makes it do
    subprocess.run(["sleep", "60"], timeout=0.05)
except subprocess.TimeoutExpired:
    pass
assert ssl._create_default_https_context().verify_mode == ssl.CERT_REQUIRED, "certificates"
assert (sys.excepthook, sys.exit, sys.getrecursionlimit()) == before, "hooks"
staying = {"OMP_NUM_THREADS", "OMP_WAIT_POLICY"}
assert not multiprocessing.active_children(), "compilers, each of which would report a Ctrl-C"
assert {name for name, _ in environment.items() ^ os.environ.items()} <= staying, "environment"
float(jt.matmul(jt.ones((4, 4)), jt.ones((4, 4))).sum().item())
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    sys.stderr.write("interrupted as usual")
"""

# Ctrl-C while Jittor is imported, once its core is loaded.
INTERRUPTED = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "jittor.nn":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
try:
    from models.machine.backend import jt
except KeyboardInterrupt:
    sys.exit(130)
"""


def run_python(program):
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


def random_matrices(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


needs_onednn = pytest.mark.skipif(
    jittor_import.library_path() is None or backend.device_info().name != "cpu",
    reason="no oneDNN wheel, or not on the CPU",
)


# the process


@pytest.mark.cli
def test_importing_jittor_prints_nothing_and_leaves_hooks_alone():
    result = run_python(AFTER_IMPORT)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "" and result.stderr.endswith("interrupted as usual")
    ended = run_python(INTERRUPTED)
    assert ended.returncode == 130 and ended.stderr == ""


# what is compiled once


@only_on_the_cpu
@pytest.mark.slow
def test_an_operation_reads_the_precompiled_header():
    (jt.array([1.0, 2.0]) * 3.0).sync()
    source = next(Path(jt.flags.cache_path).glob("jit/*_op.cc"))
    used = shlex.split(jt.flags.cc_flags)
    flags = [flag for flag in used if not flag.startswith(("-l", "-L", "-Wl,")) and flag != "-shared"]
    command = ["g++", source, *flags, "-S", "-H", "-o", os.devnull]
    assert "\n! " in "\n" + subprocess.run(command, capture_output=True, text=True, check=True).stderr  # what -H marks


# the device


def test_a_device_is_known_and_not_changed_once_jittor_runs():
    for device in ("gpu", "CUDA", "", "cpu "):
        with pytest.raises(UserError, match=f"^--device {device}.*auto, cpu, cuda"):
            jittor_import.select(device)
    info = backend.device_info()
    with pytest.raises(UserError, match=f"already runs on {info.name}"):
        jittor_import.select({"cpu": "cuda", "cuda": "cpu"}[info.name])
    jittor_import.select(info.name)
    assert info.line().startswith(f"device {info.name}") and f"{info.threads} CPU thread" in info.line()


# matrix products


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 1, 1), (64, 256, 33), (130, 17, 1)])
def test_products_and_their_gradients_agree_with_float64(rows, inner, columns):
    a, b, cotangent = random_matrices((rows, inner), (inner, columns), (rows, columns))
    x, y = jt.array(a), jt.array(b)
    product = jt.matmul(x, y)
    by_x, by_y = jt.grad((product * jt.array(cotangent)).sum(), [x, y])
    a, b, cotangent = (matrix.astype(np.float64) for matrix in (a, b, cotangent))
    np.testing.assert_allclose(product.numpy(), a @ b, atol=1e-4)
    np.testing.assert_allclose(by_x.numpy(), cotangent @ b.T, atol=1e-4)
    np.testing.assert_allclose(by_y.numpy(), a.T @ cotangent, atol=1e-4)


@needs_onednn
def test_products_and_their_gradients_go_through_onednn():
    a, b = random_matrices((64, 32), (32, 16))
    x, y = jt.array(a), jt.array(b)
    jt.sync([x, y])
    with jt.profile_scope(0, 0) as report:
        product = jt.matmul(x, y)
        jt.sync([product, *jt.grad(product.sqr().sum(), [x, y])])
    calls = sum(int(row[2]) for row in report[1:] if row[0].startswith("mkl_matmul"))
    assert calls >= 3  # the product and both gradients


def test_products_are_rounded_only_where_the_conf_allows_it_and_on_cuda(monkeypatch):
    info = backend.device_info()
    for device, is_allowed, expected in (("cpu", True, 0), ("cuda", True, 1), ("cuda", False, 0)):
        monkeypatch.setattr(backend.choice, "info", dataclasses.replace(info, name=device))
        backend.allow_tf32(is_allowed)
        assert jt.flags.use_tensorcore == expected

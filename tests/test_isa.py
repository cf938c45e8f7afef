"""Which instruction set is compiled for, and that floating point is IEEE 754's in everything that is compiled."""

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forms import only_on_the_cpu

from data.errors import UserError
from models.machine import isa, toolchain
from models.machine.backend import jt
from models.training.optimizer import Optimizer

ROOT = Path(__file__).resolve().parents[1]
V2 = "fpu cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
PROCESSORS = {"x86-64-v4": V4, "x86-64-v3": f"{V3} avx512f", "x86-64-v2": V2, "x86-64": "fpu sse2"}
# Each permits what the rules of models/machine/isa.py do not.
UNSAFE = ("-Ofast", "-ffast-math", "-funsafe-math-optimizations", "-ffinite-math-only", "-fassociative-math", "-mrecip")


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """A function that makes this machine's processor another one."""

    found, path = isa.highest.__wrapped__, tmp_path / "cpuinfo"

    def become(flags):
        path.write_text(f"processor : 0\nflags\t\t: {flags}\nbugs :\n")
        monkeypatch.setattr(isa, "highest", lambda: found(path))

    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.delenv(isa.VARIABLE, raising=False)
    return become


def test_the_highest_level_that_the_processor_has_is_used(processor):
    for name, flags in PROCESSORS.items():
        processor(flags)
        assert isa.level().name == name and isa.core_flags() == (f"-march={name}",)


def test_the_variable_chooses_a_lower_level_and_no_other(processor, monkeypatch):
    processor(V3)
    monkeypatch.setenv(isa.VARIABLE, "x86-64-v2")
    assert isa.level().name == "x86-64-v2" and toolchain.cache_name().startswith(f"{toolchain.CACHE_NAME}-x86-64-v2")
    for name in ("x86-64-v4", "native"):
        monkeypatch.setenv(isa.VARIABLE, name)
        with pytest.raises(UserError, match="NEUS_ISA.*x86-64-v3, x86-64-v2, x86-64;"):
            toolchain.check_environment()


def test_nothing_is_compiled_with_flags_that_break_ieee_754():
    used = jt.flags.cc_flags.split()
    assert not {flag for flag in used if flag.startswith(UNSAFE)} and set(isa.operation_flags()) <= set(used)
    assert [flag for flag in used if flag.startswith("-march=")][-1:] == list(isa.core_flags())
    sources = [path.read_text() for path in (ROOT / "models").rglob("*.h")]
    assert sources and not [text for text in sources if "fast-math" in text or "_mm_setcsr" in text]


# What the compiler made of it. 1e-40 is subnormal; the values are no constants, so that nothing is folded.


@only_on_the_cpu
def test_generated_operations_know_nan_infinity_and_subnormal_numbers():
    given = np.float32([np.nan, np.inf, 1e-40, 4e-40, -np.inf, 0.0] * 16)
    values = jt.array(given)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((values != values).numpy(), np.isnan(given))
        np.testing.assert_array_equal((values == values).numpy(), ~np.isnan(given))
        np.testing.assert_array_equal((values * 2.0).numpy(), given * np.float32(2))
        np.testing.assert_array_equal(values.sqrt().numpy(), np.sqrt(given))
        divided = (values / (values + 1e-38)).numpy()
        np.testing.assert_allclose(divided, given / (given + np.float32(1e-38)), rtol=1e-6)


@only_on_the_cpu
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_second_moments_below_the_smallest_normal_number_skip_no_step(openmp_threads, threads):
    openmp_threads(threads)
    size = 1 << 17  # several pieces: threads that OpenMP has started take some
    optimizer = Optimizer({"network": {"table": jt.zeros(size)}}, 0.99, 1e-15)
    optimizer.restore(1000, [np.zeros(size, np.float32)], [np.full(size, 1e-40, np.float32)])
    gradient = np.full(size, 1e-19, np.float32)
    taken = optimizer.step([jt.array(gradient)], 1e-2)
    step = 1e-2 * 0.1 * 1e-19 / (np.sqrt(0.01 * 1e-38 + 0.99 * np.float64(np.float32(1e-40))) + 1e-15)
    assert taken.item()
    np.testing.assert_allclose(optimizer.parameters[0].numpy(), -step, rtol=1e-4)


@pytest.mark.cli
def test_the_main_threads_subnormal_numbers_stay_switched_on():
    program = (
        "import numpy as np; from models.machine.backend import jt; jt.array(np.ones(3, np.float32)).exp().numpy()\n"
        "print(float(np.float32(1e-40) * np.float32(2)), flush=True)\n"
        "import os; os._exit(0)"  # the exit handlers of Jittor may deadlock
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert float(shown.stdout.split()[-1]) > 0.0

"""Native sources in Jittor's cache: files named by content, compiled together by processes, not by threads."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from runs import ROOT

from models.machine.backend import jt
from models.ops import source, together
from models.ops.loss_sums import weighted_means
from models.ops.network import pack
from models.ops.source import CPU, REFERENCE, Source, numbers, use
from models.ops.together import compile_together
from models.ops.upsample import SOURCE as UPSAMPLE

TEXT = "namespace neus { inline void fill(const Filled &is, long, const float *, float *to) { to[0] = %s; } }"


def made(tmp_path, value):
    """A source of its own whose function `fill` returns a number."""
    (tmp_path / CPU).mkdir(exist_ok=True)
    (tmp_path / source.BOTH).mkdir(exist_ok=True)
    (tmp_path / CPU / "filled.h").write_text(TEXT % value)
    return Source("filled.h", (together.Together,), folder=tmp_path)


def code_of(given):
    return source._code(given, CPU, "fill", "Together", 1, 1)


def test_a_launch_is_given_a_line_and_its_file_is_named_by_the_content(tmp_path):
    first, second, same = (code_of(made(tmp_path, value)) for value in (1, 2, 1))
    assert first == same != second and len(UPSAMPLE.text()) > 5_000
    for code in (first, code_of(UPSAMPLE)):
        assert sum(map(len, code.values())) < 300
    path = Path(jt.flags.cache_path, first["cpu_header"].split('"')[1])
    assert TEXT % 1 in path.read_text()


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("")])
def test_a_file_that_was_removed_or_damaged_is_written_anew(tmp_path, damage):
    path = Path(jt.flags.cache_path, code_of(made(tmp_path, 1))["cpu_header"].split('"')[1])
    before = path.read_text()
    damage(path)
    code_of(made(tmp_path, 1))
    assert path.read_text() == before


def test_processes_may_write_the_same_file_at_once():
    name = code_of(UPSAMPLE)["cpu_header"].split('"')[1]
    path = Path(jt.flags.cache_path, name)
    path.unlink()
    program = "from models.ops import source, upsample; source._code(upsample.SOURCE, 'cpu', 'f', 'L', 1, 1)"
    running = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert path.read_text() == UPSAMPLE.text() and not list(path.parent.glob(f".{path.name}*"))


def test_no_thread_compiles():
    assert jt.flags.use_parallel_op_compiler == 0


def test_operations_are_compiled_together_and_computed_only_later(tmp_path):
    (tmp_path / CPU).mkdir()
    token = str(tmp_path)  # makes the source new for Jittor's cache
    body = "inline void {name}(const Together &, long, const float *x, float *to) {{ to[0] = x[0] + {add}; }}"
    bodies = " ".join(body.format(name=name, add=add) for name, add in (("one", 1), ("two", 2)))
    (tmp_path / CPU / "new.h").write_text(f"// {token}\nnamespace neus {{ {bodies} }}")
    given, layout = Source("new.h", (together.Together,), folder=tmp_path), together.Together(0)

    def built():
        first = given.call("one", layout, [(1,)], [jt.array([1.0])])
        jt.sync(first)
        return given.call("two", layout, [(1,)], first)

    assert compile_together(built) >= 2
    assert built()[0].numpy().tolist() == [4.0] and compile_together(built) == 0


@pytest.mark.unit
def test_numbers_of_equal_layouts_are_those_of_either():
    layout = together.Together
    assert numbers(layout(1, 2, 3, 4)) == {"begins": 1, "take": 2, "give": 3, "processes": 4}
    assert numbers(layout(2)) == numbers(layout(2)) != numbers(layout(1))


def test_means_and_packed_layers_are_bit_identical_to_the_reference():
    generator = np.random.default_rng(0)
    totals, counts, weights = [generator.random((5, 1), dtype=np.float32) for _ in range(3)]
    matrices = [generator.random(shape, dtype=np.float32) for shape in ((4, 3), (4,), (2, 4), (2,))]

    def computed():
        terms, sizes = [jt.array(value) for value in totals], [*map(jt.array, counts[:4]), 7.0]
        found = weighted_means(terms, sizes, [1e-5] * 5, [1.0, *weights[1:, 0].tolist()])
        layers = [jt.array(value) for value in matrices]
        vector = pack([tuple(layers[:2]), tuple(layers[2:])])
        scale = jt.array(np.arange(vector.shape[0], dtype=np.float32))
        gradients = jt.grad(found[0] + (vector * scale).sum(), [*terms, *layers])
        return [value.numpy() for value in (*found, vector, *gradients)]

    own = computed()
    with use(REFERENCE):
        expected = computed()
    for value, other in zip(own, expected, strict=True):
        np.testing.assert_array_equal(value, other)

"""The benchmarks' command line, counts, table and processes; what they measure is not a test's business."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import bm_step, flops, ours, serve, shapes
from benchmarks.report import FULL, MATMUL, OURS, PEER, SMALL, Bound, Row, profile_table, step_rows, table
from benchmarks.shapes import Shape, parse_shape
from benchmarks.workers import Alone, Worker, alternate
from data.errors import UserError
from models.fields.conf import ColorConfig, NerfConfig, SdfConfig, VarianceConfig
from models.machine.backend import resident_bytes
from models.methods.neus.conf import HierarchicalConfig, NeuSConfig

# Layers: sdf 3 -> 5, with the skipped point 8 -> 8, 8 -> 4; colour 12 -> 2, 2 -> 3; background 4 -> 6, 6 -> 6, heads.
SDF = SdfConfig(d_in=3, d_out=4, d_hidden=8, n_layers=2, skip_in=(1,))
COLOR = ColorConfig(d_feature=3, mode="idr", d_in=9, d_out=3, d_hidden=2, n_layers=1)
NERF = NerfConfig(D=2, W=6, d_in=4, skips=(), use_viewdirs=True)
RENDERER = HierarchicalConfig(n_samples=4, n_importance=3, n_outside=0, up_sample_steps=2, perturb=1.0)
MODEL = NeuSConfig(
    nerf=NERF,
    sdf_network=SDF,
    variance_network=VarianceConfig(init_val=0.3),
    rendering_network=COLOR,
    neus_renderer=RENDERER,
)


def test_the_sdf_networks_products_are_those_of_its_six_passes():
    first, middle, last = 3 * 5, 8 * 8, 8 * 4
    value = first + middle + last
    sweep = first + middle
    cotangents_of_the_sweep = 2 * (first + middle)
    cotangents_of_the_value = (first + middle + last) + (middle + last)
    assert flops.sdf_training(SDF) == value + sweep + cotangents_of_the_sweep + cotangents_of_the_value
    assert flops.sdf_query(SDF) == first + middle + 8


def test_the_colour_networks_products_leave_out_the_cotangents_of_point_and_direction():
    first, last = 12 * 2, 2 * 3
    assert flops.color_training(COLOR) == 3 * (first + last) - 6 * 2
    no_views = replace(COLOR, mode="no_view_dir", d_in=6, multires_view=4)
    assert flops.color_training(no_views) == 3 * (9 * 2 + last) - 3 * 2
    encoded = replace(COLOR, multires_view=1)
    assert flops.color_training(encoded) == 3 * (18 * 2 + last) - 12 * 2


def test_the_background_networks_products_are_those_of_its_layers():
    trunk, heads = 4 * 6 + 6 * 6, 6 * 1 + 6 * 6 + 9 * 3 + 3 * 3
    assert flops.nerf_training(NERF) == 3 * (trunk + heads) - 4 * 6 - 3 * 3


def test_a_step_counts_every_ray_twice_per_multiply_add_and_the_background_only_where_it_is():
    count = flops.step_flops(MODEL, rays=5)
    assert count.queries == 2 * 5 * (4 + 1) * flops.sdf_query(SDF)  # 3 = 1 + 2: the last round's 2 are not queried
    assert count.sdf == 2 * 5 * 7 * flops.sdf_training(SDF)
    assert count.background == 0
    with_outside = replace(MODEL, neus_renderer=replace(RENDERER, n_outside=2))
    assert flops.step_flops(with_outside, rays=5).background == 2 * 5 * 9 * flops.nerf_training(NERF)
    assert count.total == count.queries + count.sdf + count.color


@pytest.mark.parametrize(
    ("samples", "importance", "rounds", "queried"), [(64, 64, 4, 112), (64, 0, 0, 0), (8, 2, 4, 9), (8, 5, 1, 8)]
)
def test_all_depths_are_queried_but_those_of_the_last_round(samples, importance, rounds, queried):
    assert flops.queried_depths(samples, importance, rounds) == queried


def test_the_released_step_needs_about_what_six_and_three_passes_cost():
    model = shapes.shape_conf(FULL).model
    sdf, color = 524_544, 271_360  # multiply-adds of a forward pass, by hand from confs/base/neus.conf
    passes = 512 * 2 * (128 * (6 * sdf + 3 * color) + 112 * sdf)
    assert 0.9 < flops.step_flops(model, 512).total / passes < 1.0


def test_a_shape_is_read_as_it_is_written():
    for shape in (SMALL, FULL, Shape(512, 64, 64, 32), Shape(1, 2, 0)):
        assert parse_shape(str(shape)) == shape


@pytest.mark.parametrize("text", ["", "64", "64x32", "64x32+", "0x32+32", "64x1+0", "64x32+32+", "-1x2+3", "64x3.5+2"])
def test_a_wrong_shape_is_refused_by_name(text):
    with pytest.raises(UserError, match="--shape"):
        parse_shape(text)


def test_without_flags_the_three_shapes_are_measured_alone():
    options = bm_step.parse_options([])
    assert [str(shape) for shape in options.shapes] == ["64x32+32", "512x64+64", "512x64+64+32"]
    assert options.steps >= 5 and options.warm_up >= 1 and options.threads >= 1
    extras = (options.with_image, options.with_start, options.with_cold_start, options.with_profile, options.with_plain)
    assert options.peer is None and not any(extras)


def test_a_peer_is_a_checkout_with_an_interpreter(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "renderer.py").touch()
    options = bm_step.parse_options(["--peer", str(tmp_path), "--peer-python", sys.executable, "--shape", "8x4+4"])
    assert options.peer == tmp_path.resolve() and str(options.peer_python) == sys.executable
    assert options.shapes == (Shape(8, 4, 4),)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], "--steps 0"),
        (["--threads", "0"], "--threads 0"),
        (["--warm-up", "-1"], "--warm-up -1"),
        (["--peer", "x"], "--peer-python"),
        (["--peer-python", "x"], "--peer FOLDER"),
        (["--peer", "/nowhere", "--peer-python", "x"], "no models/renderer.py"),
        (["--set", "train.no_such_key=1"], "no_such_key"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(arguments, words, capsys):
    assert bm_step.main(arguments) == 2
    shown = capsys.readouterr()
    assert words in shown.err and "Traceback" not in shown.err and shown.out == ""


def test_a_job_comes_back_as_it_was_written(tmp_path):
    job = shapes.make_job(shapes.shape_conf(Shape(6, 4, 4)))
    shapes.write_job(tmp_path / "job.npz", job)
    meta, batch, image = shapes.read_job(tmp_path / "job.npz")
    for name in ("origins", "directions", "near", "far"):
        np.testing.assert_array_equal(getattr(batch.rays, name), getattr(job.batch.rays, name))
        np.testing.assert_array_equal(getattr(image, name), getattr(job.image, name))
    np.testing.assert_array_equal(batch.rgb, job.batch.rgb)
    np.testing.assert_array_equal(batch.mask, job.batch.mask)
    assert len(batch.rays) == 6 and len(image) == 200 * 200
    assert meta["model"]["neus_renderer"]["n_samples"] == 4 and meta["mask_weight"] == 0.1


def test_a_background_asks_for_the_recipe_without_masks():
    assert shapes.shape_conf(Shape(6, 4, 4, 2)).train.mask_weight == 0.0
    assert shapes.shape_conf(Shape(6, 4, 4)).train.mask_weight == 0.1


def test_a_bound_holds_on_its_side_of_the_value_and_is_silent_without_a_peer():
    assert Row("r", 0.3, 1.0, Bound(0.35, "ratio")).is_reached is True
    assert Row("r", 0.4, 1.0, Bound(0.35, "ratio")).is_reached is False
    assert Row("r", 0.4, None, Bound(0.35, "ratio")).is_reached is None
    assert Row("r", 0.7, None, Bound(0.6, "ours", is_least=True)).is_reached is True
    assert Row("r", 0.5, None, Bound(0.6, "ours", is_least=True)).is_reached is False
    assert Row("r", 0.5).is_reached is None


def answers(seconds, **more):
    return [{"seconds": value, "loss": 0.5, "rate": 1e9, "peak_bytes": 2**20} | more for value in seconds]


def test_figures_are_medians_after_the_warm_up():
    given = {OURS: answers([9, 1, 2, 6]), PEER: answers([9, 4, 8, 12], peak_bytes=2**22), MATMUL: answers([1] * 4)}
    rows = {row.name: row for row in step_rows(FULL, 10**9, given, warm_up=1)}
    step, memory = rows[f"step {FULL}, s"], rows[f"peak memory {FULL}, MiB"]
    assert (step.ours, step.peer, step.ratio, step.is_reached) == (2, 8, 0.25, True)
    assert (memory.ours, memory.peer) == (1, 4)
    assert rows[f"share of matmul rate {FULL}"].ours == 0.5
    assert rows[f"first loss {FULL}, relative difference"].ours == 0.0


def test_the_table_has_a_line_for_each_figure_with_or_without_a_peer():
    given = {OURS: answers([1, 2, 3]), MATMUL: answers([1, 2, 3])}
    rows = step_rows(SMALL, 10**9, given, warm_up=0)
    lines = table(rows).splitlines()
    assert len(lines) == 2 + len(rows) and {line.count("|") for line in lines} == {7}


def test_a_profile_adds_up_to_the_wall_clock():
    shown = profile_table(SMALL, 0.1, {"sampling": {"sorting": 0.03}, "optimiser": {"element-wise": 0.02}})
    assert "| Python, graph, dispatch | 50.00 | 50.0% |" in shown and "| 100.00 | 100.0% |" in shown


class Recorder:
    """Answers with how many were asked before it."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def ask(self, *command):
        self.log.append(self.name)
        return {"position": len(self.log)}


def test_the_sides_take_turns():
    log = []
    replies = alternate({"a": Recorder(log, "a"), "b": Recorder(log, "b")}, "step", warm_up=1, count=2)
    assert "".join(log) == "ababab"
    assert [reply["position"] for reply in replies["b"]] == [2, 4, 6]


def worker_program(tmp_path, body):
    """A program that serves `body`'s commands."""
    program = tmp_path / "program.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(shapes.ROOT / 'benchmarks')!r})\n{body}")
    return [sys.executable, str(program)]


def test_a_worker_answers_whatever_its_commands_print(tmp_path):
    body = (
        "from serve import serve\ndef twice(x):\n    print('chatter')\n    return {'twice': x + x}\nserve({'t': twice})"
    )
    with Worker("w", worker_program(tmp_path, body), {}, tmp_path / "errors") as worker:
        reply = worker.ask("t", "ab")
        assert reply["twice"] == "abab" and reply["peak_bytes"] > 2**20
        assert worker.ask("t", "c")["twice"] == "cc"
    assert "chatter" in (tmp_path / "errors").read_text()


def test_the_end_of_a_worker_is_told_with_its_last_words(tmp_path):
    with pytest.raises(UserError, match=r"w ended with status 1: .*no_such_module"):
        Worker("w", worker_program(tmp_path, "import no_such_module"), {}, tmp_path / "errors")
    body = "from serve import serve\ndef leave():\n    raise SystemExit('gone')\nserve({'leave': leave})"
    with Worker("w", worker_program(tmp_path, body), {}, tmp_path / "errors") as worker:
        with pytest.raises(UserError, match="gone"):
            worker.ask("leave")
        with pytest.raises(UserError, match="gone"):
            worker.ask("leave")
    with pytest.raises(UserError, match="cannot be started"):
        Worker("w", [str(tmp_path / "nothing")], {}, tmp_path / "errors")


def test_the_others_stand_still_while_a_worker_is_asked_alone(tmp_path):
    body = (
        "import os\nfrom pathlib import Path\nfrom serve import serve\n"
        "serve({'pid': lambda: {'pid': os.getpid()}, 'state': lambda pid: {'state': "
        "Path('/proc', pid, 'stat').read_text().rsplit(')', 1)[1].split()[0]}})"
    )
    program = worker_program(tmp_path, body)
    with Worker("a", program, {}, tmp_path / "a") as one, Worker("b", program, {}, tmp_path / "b") as other:
        alone = Alone(one, [other])
        assert alone.ask("state", str(other.ask("pid")["pid"]))["state"] == "T"
        assert one.ask("state", str(other.ask("pid")["pid"]))["state"] in "RS"


def test_peak_memory_is_at_least_what_is_resident_now():
    block = np.ones(2**26, np.uint8)
    now = resident_bytes()  # first: other threads may take more between the two readings
    assert serve.peak_bytes() >= now > block.nbytes


def test_the_published_sides_driver_needs_nothing_of_this_project():
    source = (shapes.ROOT / "benchmarks" / "peer.py").read_text(encoding="utf-8")
    assert not any(line.startswith(("from benchmarks", "from data", "import jittor")) for line in source.splitlines())


@pytest.mark.cli
def test_the_program_runs_as_a_file():
    command = [sys.executable, str(shapes.ROOT / "benchmarks" / "bm_step.py"), "--help"]
    shown = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    assert "--peer-python" in shown


def test_our_side_says_what_it_runs_on():
    told = ours.about()["about"]
    assert told["device"] == "cpu" and told["threads"] >= 1 and isinstance(told["notes"], list)

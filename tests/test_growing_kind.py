"""A kind from outside without a surface, with its own sampler, whose parameters change their number between steps."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from runs import SHORT, everything, saved
from test_guard import with_nan
from toys import registered, run_conf, write_conf

import exp_runner
from data.rays import PixelBatch, Rays
from data.scenes.sampler import pixel_batch
from models.checkpoints.ours import load_checkpoint, save_checkpoint
from models.commands.command import EXIT_EMPTY_SURFACE
from models.config.blocks import TrainConfig
from models.config.strict import limits
from models.fields.state import take_rows
from models.kinds.block import PlainBlock
from models.kinds.pixels import PixelModel, photograph, upload
from models.kinds.protocol import Objective
from models.kinds.registry import Kind
from models.kinds.terms import mask_term, masked_psnr, squared_term
from models.machine.backend import jt
from models.rendering.sections import over_background
from models.structs import RayView, Var

NO_PROBE = "train.ray_chunk=32"
LONG = ("train.end_iter=8", "train.warm_up_end=1", "train.save_freq=4", *SHORT[3:])


@dataclass(frozen=True)
class CloudBlock:
    """How many blobs there are at first and at most, and the steps between two changes."""

    points: int = limits(6, at_least=1)
    most: int = limits(9, at_least=1)
    every: int = limits(3, at_least=1)


@dataclass(frozen=True)
class CloudConfig(PlainBlock):
    """The block `model`: type = cloud, cloud { ... }."""

    cloud: CloudBlock
    type: str = "cloud"

    @property
    def network_blocks(self) -> tuple[str, ...]:
        return ()

    @property
    def parameters(self) -> int:
        return 7 * self.cloud.most

    @property
    def buffer_bytes(self) -> int:
        return 4 * self.cloud.most + 8


class Cloud(jt.nn.Module):
    """N blobs: centre [N, 3], colour [N, 3] and size [N, 1]."""

    def __init__(self, count: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.centre = jt.array(generator.uniform(-0.4, 0.4, (count, 3)).astype(np.float32))
        self.color = jt.array(generator.normal(size=(count, 3)).astype(np.float32))
        self.size = jt.array(np.full((count, 1), -1.5, np.float32))


class MixedSampler:
    """Batches of pixels of all photographs at once."""

    def __init__(self, scene, batch_size, generator) -> None:
        self._scene, self._batch_size, self._generator = scene, batch_size, generator
        self.drawn = 0

    def next(self) -> PixelBatch:
        self.drawn += 1
        views = np.sort(self._generator.integers(self._scene.n_views, size=self._batch_size))
        parts = []
        for view in np.unique(views):
            count, (width, height) = int((views == view).sum()), self._scene.size(view)
            x, y = (self._generator.integers(end, size=count) for end in (width, height))
            parts.append(pixel_batch(self._scene, view, x, y))
        rays = Rays(*(np.concatenate(column) for column in zip(*(vars(p.rays).values() for p in parts), strict=True)))
        return PixelBatch(
            rays, *(np.concatenate([getattr(p, name) for p in parts]) for name in ("rgb", "mask", "view"))
        )

    def state(self):
        return {"generator": self._generator.bit_generator.state, "drawn": self.drawn}

    def restore(self, state) -> None:
        self._generator.bit_generator.state = state["generator"]
        self.drawn = int(state["drawn"])


@dataclass(frozen=True)
class Seen:
    """What rays show of the cloud."""

    rgb: Var
    opacity: Var
    target: Var
    mask: Var


class CloudModel(PixelModel):
    """Each blob weighs by how near a ray passes it; those pulled most are split, the one pulled least goes."""

    def __init__(self, block: CloudBlock, train: TrainConfig, generator: np.random.Generator) -> None:
        self.block, self.train = block, train
        self.cloud = Cloud(block.points, generator)
        self.pull = np.zeros(block.points, np.float32)  # mean length of each centre's gradient since the last change
        self.changes = np.zeros(1, np.int64)

    @property
    def networks(self):
        return {"cloud": self.cloud}

    @property
    def level_set(self):
        return None

    def sharpness(self):
        return None

    def sampler(self, scene, batch_size, generator):
        return MixedSampler(scene, batch_size, generator)

    def draw_noise(self, entries, generator):
        return None

    def settle(self, batch, noise, moment):
        return None

    def objective(self, batch, noise, moment, settled=None):
        seen = Seen(*self._render(batch.rays, moment), *photograph(batch, self.train))
        terms = {
            "color": squared_term(seen.rgb, seen.target, seen.mask),
            "mask": mask_term(seen.opacity, seen.mask, self.train.mask_weight),
        }
        return Objective(terms, seen)

    def scalars(self, output: Seen, losses: Mapping[str, Var]):
        psnr = masked_psnr(output.rgb, output.target, output.mask)
        return {"Loss/loss": losses["total"], "Statistics/psnr": psnr}

    def progress_text(self, scalars):
        return f"{len(self.pull)} blobs"

    def view(self, rays, moment):
        with jt.no_grad():
            rgb, opacity = (value.numpy() for value in self._render(rays, moment))
        return RayView(rgb, np.zeros_like(rgb), np.zeros_like(opacity), opacity)

    def view_fully(self, rays, moment):
        return self.view(rays, moment)

    def _render(self, rays, moment):
        placed = upload(rays)
        count = self.cloud.centre.shape[0]
        offset = self.cloud.centre.reshape((1, count, 3)) - placed.origins.reshape((-1, 1, 3))
        along = (offset * placed.directions.reshape((-1, 1, 3))).sum(dim=2)
        passed = offset.sqr().sum(dim=2) - along.sqr()
        weights = (-passed / self.cloud.size.exp().sqr().reshape((1, count))).exp()
        total = weights.sum(dim=1, keepdims=True)
        opacity = total / (total + 0.1)
        rgb = opacity * jt.matmul(weights / (total + 1e-6), self.cloud.color.sigmoid())
        return over_background(rgb, opacity, moment.background_rgb), opacity

    # what changes between steps

    def acts_after(self, step):
        return True

    def after_step(self, parameters, moment, gradients):
        self.pull = self.pull + np.linalg.norm(gradients["cloud.centre"].numpy(), axis=1)
        if (moment.step + 1) % self.block.every:
            return
        order = np.argsort(self.pull, kind="stable")
        named = {name: value.numpy() for name, value in self.cloud.state_dict().items()}
        grown = {name: values[order[-2:]] for name, values in named.items()}
        jitter = np.random.default_rng(self.changes[0]).normal(0.0, 0.05, (2, 3))
        grown["centre"] = (grown["centre"] + jitter).astype(np.float32)
        kept = np.sort(order[1:])
        parameters.keep("cloud", kept)
        if len(kept) + 2 <= self.block.most:
            parameters.append("cloud", grown)
        self.pull = np.zeros(self.cloud.centre.shape[0], np.float32)
        self.changes = self.changes + 1

    def adapt(self, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
        take_rows(self.cloud, shapes["cloud"])

    def buffers(self):
        return {"pull": self.pull, "changes": self.changes}

    def load_buffers(self, buffers):
        if set(buffers) != {"pull", "changes"} or len(buffers["pull"]) != self.cloud.centre.shape[0]:
            raise ValueError("its buffers do not fit its blobs")
        self.pull, self.changes = buffers["pull"], buffers["changes"]


def build(conf: CloudConfig, train: TrainConfig, generator: np.random.Generator) -> CloudModel:
    """The model."""
    return CloudModel(conf.cloud, train, generator)


@pytest.fixture(scope="module", autouse=True)
def cloud_kind():
    """Everything in this file happens with the kind registered."""
    with registered("cloud", Kind(CloudConfig, build)):
        yield


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    """A scene and a conf."""
    return write_conf(tmp_path_factory.mktemp("cloud"), "model { type = cloud, cloud {} }")


@pytest.fixture(scope="module")
def trained(conf, tmp_path_factory):
    """Eight steps with averaged weights, a checkpoint after four, and a picture; blobs change after three and six."""
    folder = tmp_path_factory.mktemp("trained")
    settings = (*LONG[:3], "train.val_freq=8", "train.val_mesh_freq=8", "train.ema_decay=0.9")
    assert run_conf(conf, folder, settings=settings) == 0
    return folder


def counts(checkpoint):
    """How many rows each array of a checkpoint has, beside those that have no row per blob."""
    arrays = [*checkpoint.tensors["cloud"].values(), *checkpoint.ema.get("cloud", {}).values()]
    arrays += [array for named in checkpoint.moments.values() for array in named.values()]
    return {len(array) for array in arrays} | {len(checkpoint.buffers["pull"])}


def test_the_number_of_parameters_changes_and_moments_averages_and_buffers_follow(trained):
    assert counts(saved(trained, 4)) == {7} and counts(saved(trained, 8)) == {8}
    assert (
        saved(trained, 8).buffers["changes"].tolist() == [2] and saved(trained, 8).buffers["changes"].dtype == np.int64
    )
    assert "8 blobs" in (trained / "logs/train.log").read_text()


def test_kept_rows_keep_their_moments_and_new_ones_start_at_zero(conf, tmp_path):
    settings = ("train.end_iter=3", "train.warm_up_end=1", "train.save_freq=2", *SHORT[3:], NO_PROBE)
    assert run_conf(conf, tmp_path / "a", settings=settings) == 0
    still = (*settings, "model.cloud.every=100")
    assert run_conf(conf, tmp_path / "b", settings=still) == 0
    ours, theirs = saved(tmp_path / "a", 3), saved(tmp_path / "b", 3)
    kept = theirs.moments["exp_avg"]["cloud.color"]
    after = ours.moments["exp_avg"]["cloud.color"]
    assert after.shape == (7, 3) and not after[5:].any()
    rows = [np.flatnonzero((kept == row).all(axis=1)).tolist() for row in after[:5]]
    assert all(len(found) == 1 for found in rows) and sorted(sum(rows, [])) == sum(rows, [])
    for name in ("centre", "color", "size"):
        np.testing.assert_array_equal(
            ours.tensors["cloud"][name][:5], theirs.tensors["cloud"][name][np.concatenate(rows)]
        )


def test_it_resumes_bit_for_bit_buffers_and_averages_included(conf, trained, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(trained / "checkpoints/ckpt_000004.safetensors", tmp_path / "checkpoints")
    assert run_conf(conf, tmp_path, "--is_continue", settings=(*LONG, "train.ema_decay=0.9")) == 0
    ours, theirs = everything(saved(tmp_path, 8)), everything(saved(trained, 8))
    assert {key for key in theirs if key.startswith(("ema/", "buffer/"))} and ours == theirs


def test_a_resume_needs_the_buffers(conf, trained, tmp_path):
    whole = saved(trained, 4)
    other = whole.buffers | {"pull": whole.buffers["pull"][::-1].copy() * 100}
    save_checkpoint(tmp_path / "checkpoints", dataclasses.replace(whole, buffers=other))
    assert run_conf(conf, tmp_path, "--is_continue", settings=(*LONG, "train.ema_decay=0.9")) == 0
    assert everything(saved(tmp_path, 8)) != everything(saved(trained, 8))


def test_buffers_that_do_not_fit_are_one_sentence(conf, trained, tmp_path, capsys):
    whole = saved(trained, 4)
    save_checkpoint(tmp_path / "checkpoints", dataclasses.replace(whole, buffers={"pull": np.zeros(2, np.float32)}))
    assert run_conf(conf, tmp_path, "--is_continue", settings=LONG) == 2
    error = capsys.readouterr().err
    assert "its buffers do not fit its blobs" in error and error.count("\n") == 1


def test_arrays_of_another_shape_than_rows_can_have_are_one_sentence(conf, trained, tmp_path, capsys):
    whole = saved(trained, 4)
    tensors = {"cloud": whole.tensors["cloud"] | {"centre": np.zeros((7, 4), np.float32)}}
    save_checkpoint(tmp_path / "checkpoints", dataclasses.replace(whole, tensors=tensors))
    assert run_conf(conf, tmp_path, "--is_continue", settings=LONG) == 2
    error = capsys.readouterr().err
    assert "centre has shape [7, 4]" in error and error.count("\n") == 1


def spoil(monkeypatch, steps):
    """NaN in the colours of the batches drawn at these calls."""
    calls, original = [], MixedSampler.next

    def spoilt(self):
        batch = original(self)
        calls.append(batch)
        return dataclasses.replace(batch, rgb=with_nan(batch.rgb)) if len(calls) - 1 in steps else batch

    monkeypatch.setattr(MixedSampler, "next", spoilt)


def test_a_refused_step_changes_no_number_of_blobs_and_is_replayed_with_those_it_had(
    conf, tmp_path, monkeypatch, capsys
):
    spoil(monkeypatch, {5})
    assert run_conf(conf, tmp_path, settings=(*LONG, NO_PROBE)) == 0
    assert "step 6 was skipped" in capsys.readouterr().err
    last = saved(tmp_path, 8)
    assert counts(last) == {7} and last.buffers["changes"].tolist() == [1] and np.isfinite(last.buffers["pull"]).all()
    monkeypatch.undo()
    (file,) = (tmp_path / "anomalies").iterdir()
    with np.load(file) as arrays:
        assert arrays["weights/cloud.centre"].shape == (7, 3) and arrays["buffers/pull"].shape == (7,)
    assert exp_runner.main(["--mode", "replay", str(file)]) == 1
    assert "the color loss" in capsys.readouterr().out


def test_going_back_takes_the_number_of_blobs_back(conf, tmp_path, monkeypatch, capsys):
    spoil(monkeypatch, {5, 6})  # after the change of the fifth step, before a checkpoint that has it
    settings = ("train.end_iter=10", "train.warm_up_end=1", "train.save_freq=2", "train.max_bad_steps=2", *SHORT[3:])
    assert run_conf(conf, tmp_path, settings=(*settings, NO_PROBE, "model.cloud.every=5")) == 0
    assert "going back to the checkpoint of step 4" in capsys.readouterr().err
    assert counts(saved(tmp_path, 4)) == {6} and counts(saved(tmp_path, 10)) == {8}


def test_pictures_come_from_the_averaged_blobs(trained):
    assert (trained / "validations_fine/00000008_0_1.png").is_file()


def test_a_mesh_is_refused_in_one_sentence_that_names_the_kind(conf, trained, capsys):
    assert not (trained / "meshes").exists()
    assert "No surface" not in (trained / "logs/train.log").read_text()  # train.val_mesh_freq = 8 asks for none
    assert run_conf(conf, trained, "--mode", "validate_mesh") == EXIT_EMPTY_SURFACE
    error = capsys.readouterr().err
    assert "a model of type cloud has none" in error and error.count("\n") == 1


def test_a_picture_of_a_finished_run_has_the_blobs_of_its_checkpoint(conf, trained):
    assert run_conf(conf, trained, "--mode", "validate_image", "--image", "0") == 0
    assert (trained / "validations_fine/00000008_0_0.png").is_file()


def test_a_plan_has_one_row(conf, tmp_path, capsys):
    assert run_conf(conf, tmp_path, "--mode", "plan") == 0
    rows = capsys.readouterr().out.splitlines()[3:-1]
    assert len(rows) == 1 and rows[0].split()[:2] == ["-*", "32"]
    assert not tmp_path.joinpath("checkpoints").exists()


def test_large_buffers_can_be_read_back_where_the_block_says_how_large_they_get(conf, trained, tmp_path, monkeypatch):
    whole = saved(trained, 8)
    large = whole.buffers | {"grid": np.zeros(1 << 25, np.uint8)}
    path = save_checkpoint(tmp_path, dataclasses.replace(whole, buffers=large))
    monkeypatch.setattr(CloudConfig, "buffer_bytes", 1 << 26)
    assert load_checkpoint(path).buffers["grid"].dtype == np.uint8


def test_an_evaluation_has_the_figures_of_its_pictures_and_no_mesh(conf, trained):
    held_out = ("dataset.test_every=3", "dataset.roi=0.3 -0.2 4 2.5")
    assert run_conf(conf, trained, "--mode", "evaluate", settings=(*SHORT, *held_out)) == 0
    figures = json.loads((trained / "report/report.json").read_text())
    assert figures["chamfer"] is None and np.isfinite(figures["psnr"])

"""Whole runs of tests/cloud_method.py: no surface, its own sampler, parameters whose number changes between steps."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
from cloud_method import CloudConfig, MixedSampler, build
from runs import ROOT, SHORT, everything, saved
from test_guard import with_nan
from toys import NO_PROBE, registered, run_conf, write_conf

import exp_runner
from models.checkpoints.ours import save_checkpoint
from models.commands.command import EXIT_EMPTY_SURFACE
from models.methods.registry import Method

pytestmark = pytest.mark.slow

LONG = ("train.end_iter=8", "train.warm_up_end=1", "train.save_freq=4", *SHORT[3:])


@pytest.fixture(scope="module", autouse=True)
def cloud_method():
    """Everything in this file happens with the kind registered."""
    with registered("cloud", Method(CloudConfig, build)):
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


def test_buffers_that_do_not_fit_are_one_sentence(conf, trained, tmp_path, capsys):
    whole = saved(trained, 4)
    save_checkpoint(tmp_path / "checkpoints", dataclasses.replace(whole, buffers={"pull": np.zeros(2, np.float32)}))
    assert run_conf(conf, tmp_path, "--is_continue", settings=LONG) == 2
    error = capsys.readouterr().err
    assert "its buffers do not fit its blobs" in error and error.count("\n") == 1


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
    assert "step 6 skipped" in capsys.readouterr().err
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
    assert "going back to the weights of step 4" in capsys.readouterr().err
    assert counts(saved(tmp_path, 4)) == {6} and counts(saved(tmp_path, 10)) == {8}


def test_a_mesh_is_refused_in_one_sentence_that_names_the_kind(conf, trained, capsys):
    assert not (trained / "meshes").exists()
    assert "No surface" not in (trained / "logs/train.log").read_text()  # train.val_mesh_freq = 8 asks for none
    assert run_conf(conf, trained, "--mode", "validate_mesh") == EXIT_EMPTY_SURFACE
    error = capsys.readouterr().err
    assert "a model of type cloud has none" in error and error.count("\n") == 1


def test_ground_truth_for_a_kind_without_a_surface_is_one_sentence_that_names_the_kind(conf, trained, capsys):
    flags = ("--mode", "evaluate", "--gt", str(ROOT / "data/demo/ground_truth.ply"), "--frame", "unit")
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*.*") if "logs" not in path.parts}
    settings = (*SHORT, "dataset.test_every=3", "dataset.roi=0.3 -0.2 4 2.5")
    assert run_conf(conf, trained, *flags, settings=settings) == EXIT_EMPTY_SURFACE == 2
    error = capsys.readouterr().err
    assert "--gt: No surface: a model of type cloud has none" in error and error.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*.*") if "logs" not in path.parts} == before

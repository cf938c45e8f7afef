"""Ranks that do not do the same are refused before anything is done, with what differs."""

import pytest
from ranks import finished, needs_mpi, sentences, started
from runs import SHORT, command

pytestmark = pytest.mark.cli


@needs_mpi
def test_ranks_that_disagree_are_refused_before_the_first_step(tmp_path):
    other = (*SHORT, "train.batch_size=32")
    status, _, err = finished(started(command(tmp_path / "a"), command(tmp_path / "a", settings=other)))
    assert status == 2
    (told,) = sentences(err)
    assert "the ranks differ: train.batch_size: 64 on rank 0, 32 on rank 1" in told
    assert not (tmp_path / "a" / "checkpoints").exists()


@needs_mpi
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--mode", "plan"), "--mode: train on rank 0, plan on rank 1"),
        (("--cases", "a,b"), "--cases: None on rank 0, a,b on rank 1"),
    ],
)
def test_ranks_that_were_asked_to_do_different_things_are_refused(tmp_path, flags, words):
    folder = tmp_path / ("CASE_NAME" if "--cases" in flags else "a")
    status, _, err = finished(started(command(tmp_path / "a"), command(folder, *flags)))
    assert status == 2
    (told,) = sentences(err)
    assert f"the ranks differ: {words}" in told

"""Ranks that do not do the same are refused before anything is done, with what differs."""

import pytest
from ranks import finished, needs_mpi, sentences, started
from runs import ROOT, SHORT, command, run, saved

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


@needs_mpi
def test_ranks_go_on_together_with_the_sizes_of_the_device_of_a_checkpoint(tmp_path):
    """Only rank 0 reads the checkpoint."""
    sizes = "model.sdf_network.d_hidden=24", "train.batch_size=32"
    assert run(tmp_path / "a", settings=("train.end_iter=3", *SHORT[1:], *sizes)) == 0
    own = tmp_path / "own.conf"
    blocks = "model.sdf_network.d_hidden = { cpu = 16, cuda = 24 }\ntrain.batch_size = { cpu = 64, cuda = 32 }\n"
    own.write_text(f'include required("{ROOT}/confs/debug.conf")\n{blocks}')
    line = command(tmp_path / "a", "--is_continue")
    line[line.index("--conf") + 1] = str(own)
    status, _, err = finished(started(line))
    assert status == 0, err
    assert saved(tmp_path / "a", 6).tensors["sdf_network_fine"]["lin0.bias"].shape == (24,)

"""Theorems about the newest checkpoint: damage costs at most the steps since the one before, and is always told."""

import pytest
from checkpoint_samples import assert_one_sentence, assert_same, make_checkpoint

from models.checkpoints.folder import CheckpointFolder, latest_checkpoint
from models.checkpoints.ours import CheckpointError, save_checkpoint


def unexpected(text):
    raise AssertionError(f"unexpected warning: {text}")


@pytest.mark.parametrize("steps", [(1, 2, 3), (3, 2, 1), (999999, 1000000), (20, 3)])
def test_the_latest_is_the_one_of_the_most_steps(tmp_path, steps):
    for step in steps:
        save_checkpoint(tmp_path, make_checkpoint(step))
    assert latest_checkpoint(tmp_path, unexpected).step == max(steps)


def test_without_checkpoints_or_without_a_folder_there_is_no_latest(tmp_path):
    assert latest_checkpoint(tmp_path, unexpected) is None
    assert latest_checkpoint(tmp_path / "nothing", unexpected) is None


def test_other_files_are_not_looked_at(tmp_path):
    save_checkpoint(tmp_path, make_checkpoint(4))
    for name in (".ckpt_000009.safetensors.7.tmp", "ckpt_000009.pth", "ckpt_9.safetensors", "xckpt_000009.safetensors"):
        (tmp_path / name).write_bytes(b"half")
    assert latest_checkpoint(tmp_path, unexpected).step == 4


def test_damaged_newest_ones_are_reported_and_the_one_before_is_used(tmp_path):
    paths = [save_checkpoint(tmp_path, make_checkpoint(step)) for step in (1, 2, 3)]
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    paths[1].write_bytes(paths[1].read_bytes()[:-1] + b"\x00")
    warnings = []
    assert_same(latest_checkpoint(tmp_path, warnings.append), make_checkpoint(1))
    assert [str(path) in text for path, text in zip((paths[2], paths[1]), warnings, strict=True)] == [True, True]


def test_if_all_are_damaged_that_is_an_error_which_names_the_folder(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path, make_checkpoint(step)).write_bytes(b"")
    warnings = []
    with pytest.raises(CheckpointError) as caught:
        latest_checkpoint(tmp_path, warnings.append)
    assert_one_sentence(caught.value, tmp_path)
    assert len(warnings) == 2


def test_a_file_in_place_of_the_folder_is_one_clear_sentence(tmp_path):
    path = tmp_path / "checkpoints"
    path.write_text("")
    with pytest.raises(CheckpointError) as caught:
        latest_checkpoint(path, unexpected)
    assert_one_sentence(caught.value, path)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path):
    kept = ["ckpt_000003.safetensors", ".notes.tmp", "ckpt_000004.safetensors.tmp"]
    for name in (*kept, ".ckpt_000006.safetensors.77.tmp"):
        (tmp_path / name).write_bytes(b"x")
    CheckpointFolder(tmp_path, keep=0, starts_over=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    CheckpointFolder(tmp_path / "none", keep=0, starts_over=False)

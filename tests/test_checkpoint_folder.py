"""Theorems about a folder of checkpoints: what stays, what goes, and that nothing goes before something is there."""

import dataclasses
import os
import shutil

import numpy as np
import pytest
from checkpoint_samples import assert_one_sentence, assert_same, make_checkpoint

from models.checkpoints import folder as checkpoint_folder
from models.checkpoints import ours as checkpoint
from models.checkpoints.folder import EARLIER, CheckpointFolder, has_checkpoints, latest_checkpoint
from models.checkpoints.ours import load_checkpoint, save_checkpoint
from models.training.checkpoint import CheckpointError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def name(step):
    return f"ckpt_{step:06d}.safetensors"


@pytest.fixture
def earlier(tmp_path):
    """A folder with the checkpoints of a run that got further."""
    folder = tmp_path / "checkpoints"
    for step in (300, 600):
        save_checkpoint(folder, make_checkpoint(step))
    return folder


# the newest


def test_the_latest_is_the_one_of_the_most_steps(tmp_path):
    for folder in (tmp_path, tmp_path / "nothing"):
        assert latest_checkpoint(folder, pytest.fail) is None
    for step in (3, 1000000, 999999):
        save_checkpoint(tmp_path, make_checkpoint(step))
    for other in (".ckpt_999999.safetensors.7.tmp", "ckpt_999999.pth", "ckpt_9.safetensors", "x" + name(999999)):
        (tmp_path / other).write_bytes(b"half")
    assert latest_checkpoint(tmp_path, pytest.fail).step == 1000000


def test_the_step_inside_counts_and_only_finite_numbers_are_gone_back_to(tmp_path):
    save_checkpoint(tmp_path, make_checkpoint(3))
    shutil.copy(tmp_path / name(3), tmp_path / name(999999))
    save_checkpoint(tmp_path, make_checkpoint(6)).rename(tmp_path / name(1))
    assert latest_checkpoint(tmp_path, pytest.fail).step == 6
    spoilt = {"net": {"w": np.full(2, np.nan, np.float32)}}
    save_checkpoint(tmp_path, dataclasses.replace(make_checkpoint(9), tensors=spoilt))
    assert CheckpointFolder(tmp_path, 0, False).last_finite(pytest.fail).step == 6


def test_damaged_ones_are_told_and_the_one_before_is_used_if_there_is_one(tmp_path):
    paths = [save_checkpoint(tmp_path, make_checkpoint(step)) for step in (1, 2, 3)]
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    paths[1].write_bytes(paths[1].read_bytes()[:-1] + b"\x00")
    warnings = []
    assert_same(latest_checkpoint(tmp_path, warnings.append), make_checkpoint(1))
    assert [str(path) in text for path, text in zip((paths[2], paths[1]), warnings, strict=True)] == [True, True]
    paths[0].write_bytes(b"")
    for folder in (tmp_path, paths[0]):  # and a file in place of the folder
        with pytest.raises(CheckpointError) as caught:
            latest_checkpoint(folder, warnings.append)
        assert_one_sentence(caught.value, folder)
    assert len(warnings) == 5


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path):
    kept = [name(3), ".notes.tmp", name(4) + ".tmp"]
    for inner in (*kept, f".{name(6)}.77.tmp"):
        (tmp_path / inner).write_bytes(b"x")
    CheckpointFolder(tmp_path, 0, False)
    assert names(tmp_path) == sorted(kept)
    CheckpointFolder(tmp_path / "none", 0, False)


def test_what_was_just_saved_stays_whatever_else_lies_there(tmp_path):
    store = CheckpointFolder(tmp_path, 2, False)
    save_checkpoint(tmp_path, make_checkpoint(999))
    shutil.copy(save_checkpoint(tmp_path, make_checkpoint(1)), tmp_path / name(777))
    (tmp_path / name(888)).write_bytes(b"damaged")
    for step in (2, 3, 4):
        assert load_checkpoint(store.save(make_checkpoint(step))).step == step
    assert names(tmp_path) == [name(step) for step in (3, 4, 777, 888, 999)]


# starting over


def test_earlier_checkpoints_stay_until_the_first_new_one_is_complete(earlier):
    store = CheckpointFolder(earlier, 0, True)
    assert names(earlier) == [name(300), name(600)]
    assert store.last_finite(pytest.fail) is None  # a run that starts over never goes back into the one before
    store.save(make_checkpoint(3))
    assert names(earlier) == [name(3)] and names(earlier.parent) == ["checkpoints"]
    store.save(make_checkpoint(6))
    assert names(earlier) == [name(3), name(6)] and store.last_finite(pytest.fail).step == 6


def killed_while_saving(folder, monkeypatch, module, function):
    """Save the first checkpoint of a run that starts over in a process that dies in `function`."""
    child = os.fork()
    if not child:
        try:
            monkeypatch.setattr(module, function, lambda *_, **__: os._exit(9))
            CheckpointFolder(folder, 0, True).save(make_checkpoint(3))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_kill_before_the_first_new_one_leaves_the_earlier_ones(earlier, monkeypatch):
    killed_while_saving(earlier, monkeypatch, checkpoint, "write_atomically")
    assert has_checkpoints(earlier) and latest_checkpoint(earlier, pytest.fail).step == 600
    CheckpointFolder(earlier, 0, False)
    assert names(earlier) == [name(300), name(600)] and names(earlier.parent) == ["checkpoints"]


def test_a_kill_after_the_first_new_one_leaves_the_newest_earlier_one_too(earlier, monkeypatch):
    killed_while_saving(earlier, monkeypatch, checkpoint_folder, "_remove_earlier")
    assert names(earlier) == [name(3), name(300), name(600)]
    assert latest_checkpoint(earlier, pytest.fail).step == 600
    CheckpointFolder(earlier, 0, True).save(make_checkpoint(3))
    assert names(earlier) == [name(3)]


def test_starting_over_removes_nothing_but_checkpoints_of_this_program(earlier):
    foreign = ["notes.txt", "final.safetensors", "ckpt_300000.pth", name(700), "best/" + name(600), name(800) + "/mine"]
    for inner in foreign:
        (earlier / inner).parent.mkdir(exist_ok=True)
        (earlier / inner).write_bytes(b"mine")
    elsewhere = save_checkpoint(earlier.parent / "elsewhere", make_checkpoint(9))
    (earlier / elsewhere.name).symlink_to(elsewhere)
    (earlier / "folder").symlink_to(elsewhere.parent)
    shutil.copy(earlier / name(300), earlier / name(999999))
    for starts_over in (True, False):
        CheckpointFolder(earlier, 1, starts_over).save(make_checkpoint(3))
    assert [(earlier / inner).read_bytes() for inner in foreign] == [b"mine"] * len(foreign)
    kept = [name(3), "best", "folder", name(800), *(inner for inner in foreign if "/" not in inner)]
    assert names(earlier) == sorted(kept) and load_checkpoint(elsewhere).step == 9  # a link goes, not its target


# what could not be read


def altered(folder, step):
    path = save_checkpoint(folder, make_checkpoint(step))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    return path


def test_what_was_refused_is_never_overwritten_nor_removed(tmp_path):
    save_checkpoint(tmp_path, make_checkpoint(3))
    kept = altered(tmp_path, 6).read_bytes()
    assert latest_checkpoint(tmp_path, str).step == 3
    store = CheckpointFolder(tmp_path, 1, False)
    store.save(make_checkpoint(6, seed=1))
    assert names(tmp_path) == [name(6), name(6) + ".refused"]
    assert (tmp_path / (name(6) + ".refused")).read_bytes() == kept
    altered(tmp_path, 6)
    store.save(make_checkpoint(6, seed=1))
    refused = [name(6) + ".refused", name(6) + ".refused2"]
    assert names(tmp_path) == [name(6), *refused] and latest_checkpoint(tmp_path, pytest.fail).step == 6
    altered(tmp_path, 9)
    for step in (12, 15):
        store.save(make_checkpoint(step))
    assert names(tmp_path) == [*refused, name(9), name(15)]


# links


def test_a_checkpoint_replaces_a_link_and_none_is_written_through_one(tmp_path):
    target, folder = tmp_path / "target", tmp_path / "checkpoints"
    target.write_bytes(b"mine")
    folder.mkdir()
    (folder / name(3)).symlink_to(target)
    (folder / f".{name(3)}.{os.getpid()}.tmp").symlink_to(target)
    assert load_checkpoint(save_checkpoint(folder, make_checkpoint(3))).step == 3
    assert target.read_bytes() == b"mine" and names(folder) == [name(3)]
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(tmp_path / "link", make_checkpoint(6))
    assert_one_sentence(caught.value, "symbolic link")
    assert names(folder) == [name(3)]


# what --mode reconstruct sets aside


def test_what_is_set_aside_is_whole_and_only_this_programs_goes(earlier):
    (earlier / name(900)).write_bytes(b"of another program")
    checkpoint_folder.back_up(earlier)
    assert names(earlier) == [EARLIER] and names(earlier / EARLIER) == [name(300), name(600), name(900)]
    assert latest_checkpoint(earlier, pytest.fail) is None
    checkpoint_folder.remove_backup(earlier)
    assert names(earlier / EARLIER) == [name(900)]
    (earlier / EARLIER / name(900)).unlink()
    checkpoint_folder.remove_backup(earlier)
    assert names(earlier) == []

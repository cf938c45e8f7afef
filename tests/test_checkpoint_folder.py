"""Theorems about a folder of checkpoints: what stays, what goes, and that nothing goes before something is there."""

import dataclasses
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from checkpoint_samples import assert_one_sentence, make_checkpoint

from models.checkpoints import folder as checkpoint_folder
from models.checkpoints import ours as checkpoint
from models.checkpoints.folder import (
    EARLIER,
    CheckpointFolder,
    has_checkpoints,
    latest_checkpoint,
    remove_set_aside,
    set_aside,
)
from models.checkpoints.ours import CheckpointError, load_checkpoint, save_checkpoint


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


# the step inside counts


def test_a_file_under_a_larger_number_is_not_the_newest(tmp_path):
    for step in (3, 6):
        save_checkpoint(tmp_path, make_checkpoint(step))
    shutil.copy(tmp_path / name(3), tmp_path / name(999999))
    assert latest_checkpoint(tmp_path, pytest.fail).step == 6
    assert CheckpointFolder(tmp_path, 0, False).last_finite(pytest.fail).step == 6


def test_a_file_under_a_smaller_number_is_the_newest(tmp_path):
    save_checkpoint(tmp_path, make_checkpoint(3))
    save_checkpoint(tmp_path, make_checkpoint(6)).rename(tmp_path / name(1))
    assert latest_checkpoint(tmp_path, pytest.fail).step == 6


@pytest.mark.parametrize("keep", [1, 2])
def test_what_was_just_saved_stays_whatever_else_lies_there(tmp_path, keep):
    store = CheckpointFolder(tmp_path, keep, False)
    save_checkpoint(tmp_path, make_checkpoint(999))
    shutil.copy(save_checkpoint(tmp_path, make_checkpoint(1)), tmp_path / name(777))
    (tmp_path / name(888)).write_bytes(b"damaged")
    for step in (2, 3, 4):
        assert load_checkpoint(store.save(make_checkpoint(step))).step == step
    kept = [name(step) for step in range(5 - keep, 5)]
    assert names(tmp_path) == sorted([*kept, name(777), name(888), name(999)])


# starting over


def test_earlier_checkpoints_stay_until_the_first_new_one_is_complete(earlier):
    store = CheckpointFolder(earlier, 0, True)
    assert names(earlier) == [name(300), name(600)]
    assert store.last_finite(pytest.fail) is None  # a run that starts over never goes back into the one before
    store.save(make_checkpoint(3))
    assert names(earlier) == [name(3)] and names(earlier.parent) == ["checkpoints"]
    store.save(make_checkpoint(6))
    assert names(earlier) == [name(3), name(6)] and store.last_finite(pytest.fail).step == 6


def test_a_first_checkpoint_that_does_not_fit_leaves_the_earlier_ones_where_they_were(earlier, monkeypatch):
    def refuse(path, content):
        raise OSError(28, "No space left on device")

    store = CheckpointFolder(earlier, 1, True)
    monkeypatch.setattr(checkpoint, "write_atomically", refuse)
    with pytest.raises(CheckpointError):
        store.save(make_checkpoint(3))
    assert names(earlier) == [name(300), name(600)] and names(earlier.parent) == ["checkpoints"]
    monkeypatch.undo()
    store.save(make_checkpoint(3))
    assert names(earlier) == [name(3)]


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


def test_a_kill_before_the_first_new_one_is_complete_leaves_the_earlier_ones(earlier, monkeypatch):
    killed_while_saving(earlier, monkeypatch, checkpoint, "write_atomically")
    assert has_checkpoints(earlier) and latest_checkpoint(earlier, pytest.fail).step == 600
    CheckpointFolder(earlier, 0, False)
    assert names(earlier) == [name(300), name(600)] and names(earlier.parent) == ["checkpoints"]


def test_a_kill_after_the_first_new_one_is_complete_leaves_the_newest_earlier_one_too(earlier, monkeypatch):
    killed_while_saving(earlier, monkeypatch, checkpoint_folder, "_remove_earlier")
    assert names(earlier) == [name(3), name(300), name(600)]
    assert latest_checkpoint(earlier, pytest.fail).step == 600
    CheckpointFolder(earlier, 0, True).save(make_checkpoint(3))
    assert names(earlier) == [name(3)]


def test_an_earlier_one_that_cannot_be_removed_is_told_and_never_gone_back_into(earlier, monkeypatch):
    unlink = Path.unlink

    def refuse(path, missing_ok=False):
        if path.name == name(300):
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok)

    store = CheckpointFolder(earlier, 0, True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(CheckpointError) as caught:
            store.save(make_checkpoint(3))
    assert_one_sentence(caught.value, earlier / name(300), "cannot be removed")
    assert store.last_finite(pytest.fail) is None
    store.save(make_checkpoint(6))
    assert names(earlier) == [name(6)]


def test_starting_over_removes_nothing_but_checkpoints_of_this_program(earlier, monkeypatch):
    foreign = ["notes.txt", "final.safetensors", "ckpt_300000.pth", name(700), "best/" + name(600), name(800) + "/mine"]
    for inner in foreign:
        (earlier / inner).parent.mkdir(exist_ok=True)
        (earlier / inner).write_bytes(b"mine")
    shutil.copytree(earlier, earlier.with_name("checkpoints.earlier"))
    aside = sorted(earlier.with_name("checkpoints.earlier").rglob("*"))
    shutil.copy(earlier / name(300), earlier / name(999999))
    for starts_over in (True, False):
        CheckpointFolder(earlier, 1, starts_over).save(make_checkpoint(3))
    assert [(earlier / inner).read_bytes() for inner in foreign] == [b"mine"] * len(foreign)
    assert names(earlier) == sorted([name(3), "best", name(800), *(inner for inner in foreign if "/" not in inner)])
    assert sorted(earlier.with_name("checkpoints.earlier").rglob("*")) == aside


# what could not be read


def of_a_newer_version(folder, step, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "PLAIN_SCHEMA", checkpoint.SCHEMA + 1)
        return save_checkpoint(folder, make_checkpoint(step))


def altered(folder, step, _):
    path = save_checkpoint(folder, make_checkpoint(step))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    return path


def cut_short(folder, step, _):
    path = save_checkpoint(folder, make_checkpoint(step))
    path.write_bytes(path.read_bytes()[:100])
    return path


UNREADABLE = [of_a_newer_version, altered, cut_short]


@pytest.mark.parametrize("make", UNREADABLE, ids=lambda make: make.__name__)
def test_what_was_refused_is_never_overwritten(tmp_path, monkeypatch, make):
    save_checkpoint(tmp_path, make_checkpoint(3))
    kept = make(tmp_path, 6, monkeypatch).read_bytes()
    assert latest_checkpoint(tmp_path, str).step == 3
    store = CheckpointFolder(tmp_path, 1, False)
    store.save(make_checkpoint(6, seed=1))
    assert names(tmp_path) == [name(6), name(6) + ".refused"]
    assert (tmp_path / (name(6) + ".refused")).read_bytes() == kept
    make(tmp_path, 6, monkeypatch)
    store.save(make_checkpoint(6, seed=1))
    assert names(tmp_path) == [name(6), name(6) + ".refused", name(6) + ".refused2"]
    assert latest_checkpoint(tmp_path, pytest.fail).step == 6


@pytest.mark.parametrize("make", UNREADABLE, ids=lambda make: make.__name__)
def test_what_was_refused_is_not_counted_among_those_that_go(tmp_path, monkeypatch, make):
    kept = make(tmp_path, 6, monkeypatch)
    store = CheckpointFolder(tmp_path, 1, False)
    for step in (9, 12, 15):
        store.save(make_checkpoint(step))
    assert names(tmp_path) == [kept.name, name(15)]


def test_one_that_does_not_fit_into_memory_is_not_overwritten(tmp_path, monkeypatch):
    def too_large(*_):
        raise MemoryError

    kept = save_checkpoint(tmp_path, make_checkpoint(6)).read_bytes()
    monkeypatch.setattr(checkpoint, "_decode", too_large)
    CheckpointFolder(tmp_path, 1, False).save(make_checkpoint(6, seed=1))
    assert (tmp_path / (name(6) + ".refused")).read_bytes() == kept


def test_starting_over_removes_links_and_not_what_they_lead_to(earlier, tmp_path):
    kept = save_checkpoint(tmp_path / "elsewhere", make_checkpoint(9))
    (earlier / kept.name).symlink_to(kept)
    (earlier / "folder").symlink_to(kept.parent)
    CheckpointFolder(earlier, 0, True).save(make_checkpoint(3))
    assert names(earlier) == [name(3), "folder"] and load_checkpoint(kept).step == 9


# links


def test_a_checkpoint_replaces_a_link_and_does_not_follow_it(tmp_path):
    target, folder = tmp_path / "target", tmp_path / "checkpoints"
    target.write_bytes(b"mine")
    folder.mkdir()
    (folder / name(3)).symlink_to(target)
    (folder / f".{name(3)}.{os.getpid()}.tmp").symlink_to(target)
    assert load_checkpoint(save_checkpoint(folder, make_checkpoint(3))).step == 3
    assert target.read_bytes() == b"mine" and names(folder) == [name(3)]


def test_a_folder_of_checkpoints_that_is_a_link_is_not_written_to(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "target")
    with pytest.raises(CheckpointError) as caught:
        save_checkpoint(tmp_path / "checkpoints", make_checkpoint(3))
    assert_one_sentence(caught.value, "symbolic link")
    assert names(tmp_path / "target") == []


def test_numbers_that_are_not_finite_are_passed_over(tmp_path):
    save_checkpoint(tmp_path, make_checkpoint(3))
    spoilt = dataclasses.replace(make_checkpoint(6), tensors={"net": {"w": np.full(2, np.nan, np.float32)}})
    save_checkpoint(tmp_path, spoilt)
    assert CheckpointFolder(tmp_path, 0, False).last_finite(pytest.fail).step == 3


# what the viewer's slider goes over, and what --mode reconstruct sets aside


def test_what_is_set_aside_is_whole_and_only_this_programs_goes(earlier):
    (earlier / name(900)).write_bytes(b"of another program")
    set_aside(earlier)
    assert names(earlier) == [EARLIER] and names(earlier / EARLIER) == [name(300), name(600), name(900)]
    assert latest_checkpoint(earlier, pytest.fail) is None
    remove_set_aside(earlier)
    assert names(earlier / EARLIER) == [name(900)]
    (earlier / EARLIER / name(900)).unlink()
    remove_set_aside(earlier)
    remove_set_aside(earlier)
    assert names(earlier) == []


def test_nothing_is_set_aside_through_a_link(earlier, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (earlier / EARLIER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="cannot be moved to earlier/"):
        set_aside(earlier)
    assert names(tmp_path / "elsewhere") == []

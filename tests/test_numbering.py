"""A photograph that was removed shifts the cameras of all after it: told by the numbers in the names."""

from pathlib import Path

import pytest
from synthetic_scene import dataset_config, write_scene

from data.errors import UserError
from data.inspection.camera_checks import cameras
from data.readers.numbering import numbers
from data.scenes.load import load_scene


def renamed(folder, kinds, names):
    """The files of the kinds, in order, under new names; None removes one."""
    for kind in kinds:
        for path, name in zip(sorted((folder / kind).iterdir()), names, strict=True):
            path.unlink() if name is None else path.rename(path.with_name(f"_{name}"))
        for path in list((folder / kind).iterdir()):
            path.rename(path.with_name(path.name[1:]))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["000.png", "001.png", "010.png"], [0, 1, 10]),
        (["scan24_1.png", "scan24_3.jpg"], [1, 3]),
        (["rect_001_3_r5000.png", "rect_002_3_r5000.png"], [1, 2]),
        (["a.png", "b.png"], None),
        (["1.png", "01.png"], None),
        (["left1.png", "right1.png"], None),
        (["cam2_5.png"], None),
        ([], None),
    ],
)
def test_names_are_numbered_where_one_number_tells_them_apart(names, expected):
    assert numbers([Path(name) for name in names]) == expected


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([None, "001.png", "002.png", "003.png", "004.png"], "skip 0, .*from 001.png on"),
        (["a_0.png", "a_1.png", None, None, "a_4.png"], "skip 2 and 3, .*from a_4.png on"),
    ],
)
def test_a_gap_that_has_a_camera_is_refused(tmp_path, names, words):
    write_scene(tmp_path, n_views=5)
    renamed(tmp_path, ("image", "mask"), names)
    with pytest.raises(UserError, match=words) as caught:
        load_scene(dataset_config(tmp_path))
    told = str(caught.value)
    assert [word for word in ("has 5 cameras", "renumber", "dataset.train_views") if word not in told] == []


def test_masks_of_other_numbers_are_refused_and_other_spellings_are_not(tmp_path):
    write_scene(tmp_path, n_views=4)
    renamed(tmp_path, ("image",), ["000000.png", "000001.png", "000002.png", "000003.png"])
    assert load_scene(dataset_config(tmp_path)).n_views == 4
    renamed(tmp_path, ("mask",), ["000.png", "001.png", "003.png", "004.png"])
    with pytest.raises(UserError, match="003.png is the mask of 000002.png, but their numbers differ.*restore"):
        load_scene(dataset_config(tmp_path))


def test_more_cameras_than_photographs_are_said_once_and_marked(tmp_path):
    write_scene(tmp_path, n_views=5)
    renamed(tmp_path, ("image", "mask"), ["000.png", "001.png", "002.png", "003.png", None])
    scene = load_scene(dataset_config(tmp_path))
    assert scene.n_views == 4 and scene.spare_cameras == 1
    assert sum("has 5 cameras for 4 photographs" in note for note in scene.notes) == 1
    finding = cameras(scene)
    assert finding.verdict != "good" and finding.figure.startswith("1 more than photographs; ")

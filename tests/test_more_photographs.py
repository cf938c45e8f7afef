"""Photographs added to a prepared scene are registered in it, removed ones leave, and cameras, frame, region stay."""

import numpy as np
import pytest
from preparations import forbid, read, refuse, request
from rendered_photographs import picture, write_photographs

from data.io.images import write_image
from data.prepare import more_photographs
from data.prepare.metric import Known
from data.prepare.pipeline import prepare
from data.prepare.products import only_one


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A scene of photographs 0, 2, 3, 4 and 6 of seven, to which 1 and 5 are added and of which 6 is removed."""
    folder = tmp_path_factory.mktemp("grown")
    poses = write_photographs(folder / "photos", 7)
    for number in range(7):  # the names of images of a scene
        (folder / f"photos/photo_{number}.png").rename(folder / f"photos/{number:03d}.png")
    for number in (1, 5):
        (folder / f"photos/{number:03d}.png").rename(folder / f"{number:03d}.png")
    assert prepare(request(folder), str)
    before = read(folder / "scene")
    for number in (1, 5):
        (folder / f"{number:03d}.png").rename(folder / f"photos/{number:03d}.png")
    (folder / "photos/006.png").unlink()
    said = []
    with pytest.MonkeyPatch.context() as context:  # interrupted while the work folder is replaced
        context.setattr(more_photographs, "adopt", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare(request(folder), said.append)
    return folder, poses, before, said


def world_centres(scene):
    return scene.c2w[:, :3, 3] @ scene.scene_to_world[:3, :3].T + scene.scene_to_world[:3, 3]


def test_new_photographs_are_registered_and_the_others_stay(grown):
    folder, poses, before, said = grown
    assert (folder / "scene/prepare/next/scene.json").exists()
    words = "contains a scene of other photographs or options .--roi, --marker, --scale or --conf.; pass --overwrite"
    refuse(words, folder, known=Known(marker=0.03))
    assert not (folder / "scene/prepare/next").exists(), "the interrupted call is finished by any other"
    assert not prepare(request(folder), str)
    assert "region of interest: from cameras_sphere.npz" in said
    after = read(folder / "scene")
    order = [f"{number:03d}.png" for number in (0, 2, 3, 4, 1, 5)]
    assert list(after.photographs) == order
    assert np.allclose(after.scene_to_world, before.scene_to_world)
    extent = np.ptp(world_centres(before), axis=0).max()
    assert np.allclose(world_centres(after)[:4], world_centres(before)[:4], atol=1e-4 * extent)
    truth = poses[[0, 2, 3, 4, 1, 5], :3, 3]
    from data.cameras import similarity

    turn, scale, shift = similarity(world_centres(after)[:4], truth[:4])
    errors = np.linalg.norm(scale * world_centres(after) @ turn.T + shift - truth, axis=1)
    assert errors[4:].max() < 0.03 * np.ptp(truth, axis=0).max()
    assert after.frame.up_source == before.frame.up_source
    assert not prepare(request(folder), str), "complete"


def test_a_renamed_photograph_is_the_same(grown, monkeypatch):
    folder, *_ = grown
    (folder / "photos/004.png").rename(folder / "photos/another.png")
    forbid(monkeypatch, "find_features", "map_images")
    assert not prepare(request(folder), str), "complete"
    assert "004.png" in read(folder / "scene").photographs
    (folder / "photos/another.png").rename(folder / "photos/004.png")


def test_a_second_process_waits_for_none(grown):
    folder, *_ = grown
    (folder / "photos/005.png").rename(folder / "005.png")
    with only_one(folder / "scene/prepare"):
        refuse("another --mode prepare .process [0-9]+. is running in .*scene: wait for it", folder)
    (folder / "005.png").rename(folder / "photos/005.png")
    assert not prepare(request(folder), str), "nothing changed"


def test_a_changed_photograph_and_another_object_are_refused(grown):
    folder, *_ = grown
    given = folder / "scene/frame.json"
    given.rename(folder / "frame.json")
    (folder / "photos/005.png").rename(folder / "005.png")
    refuse("frame.json beside it: is damaged or missing, which has lenses and poses", folder)
    (folder / "frame.json").rename(given)
    refuse(
        "contains a scene of other photographs or options",
        folder,
        known=Known(length=("0", "0", "0", "1", "0", "0", "2")),
    )
    refuse("contains a scene of other photographs or options", folder, roi="0 0 0 1")
    (folder / "005.png").rename(folder / "photos/005.png")
    (folder / "photos/006.png").write_bytes((folder / "photos/000.png").read_bytes())
    kept = (folder / "photos/002.png").read_bytes()
    (folder / "photos/002.png").write_bytes((folder / "photos/003.png").read_bytes())
    refuse("002.png: changed since the scene was prepared; pass --overwrite", folder)
    assert not (folder / "scene/prepare/next").exists()
    (folder / "photos/002.png").write_bytes(kept)
    for number in (0, 1, 2, 4, 6):
        (folder / f"photos/{number:03d}.png").unlink()
        write_image(folder / f"photos/other_{number}.png", picture(240, 320, number))
    refuse("contains a scene of other photographs or options", folder)

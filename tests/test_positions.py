"""An object that was turned over between two sets of photographs: they are joined by what is inside the masks."""

import shutil

import numpy as np
import pytest
from preparations import compare, lines_of, read, refuse
from rendered_photographs import cube, picture, room_textures, textures
from synthetic_scene import look_at

from data.errors import UserError
from data.io.images import write_image
from data.io.named_files import required_mask_files
from data.prepare.beside import find_photographs, masks_beside
from data.prepare.frames import Frame
from data.prepare.sfm.matches import similar_pairs
from data.prepare.sources import notes_of
from data.prepare.world import position_of

SIZE, FOCAL, HALF = 240, 300.0, 0.5
TURNS = {"bottom": np.diag([1.0, -1.0, -1.0]), "top": np.eye(3)}  # of the block on its table
BELOW = 0.6  # vertical over horizontal part of the directions from the block to the cameras


def photographs(folder, count, texture_of):
    """count photographs of a block on a table in each position, with masks; returns the poses in the block's frame."""
    pixels = np.arange(SIZE) - (SIZE - 1) / 2
    x, y = np.meshgrid(pixels, pixels)
    local, table, found = np.stack([x / FOCAL, y / FOCAL, np.ones_like(x)], axis=-1), textures(7)[0], []
    for name, turn in TURNS.items():
        faces = list(room_textures(texture_of(name)))
        for index, angle in enumerate(np.linspace(0, 2 * np.pi, count, endpoint=False)):
            pose = look_at(2.6 * np.array([np.cos(angle), np.sin(angle), BELOW]))
            rays = local @ pose[:3, :3].T
            places = pose[:2, 3] - (pose[2, 3] + HALF) / np.minimum(rays[..., 2:], -1e-6) * rays[..., :2]
            places = np.mod(60 * places, 256).astype(int)
            image = np.where(rays[..., 2:] < 0, table[places[..., 0], places[..., 1]], 0.7)
            pose[:3] = turn.T @ pose[:3]
            distances, colours = cube(pose[:3, 3], rays @ turn, HALF, faces, False)
            hit = np.isfinite(distances)
            image[hit] = colours[hit]
            for kind, values in (("", image), ("masks", np.where(hit, 1.0, 0.0))):
                path = folder / name / kind / f"{index:02}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_image(path, np.rint(255 * values).astype(np.uint8))
            found.append(pose)
    return np.array(found)


@pytest.mark.slow
def test_cameras_of_both_positions_are_those_around_the_object(tmp_path):
    poses = photographs(tmp_path / "photos", 10, lambda name: 1)
    said = lines_of(tmp_path)
    scene = read(tmp_path / "scene")
    assert scene.photographs == tuple(f"{name}/{index:02}.png" for name in TURNS for index in range(10))
    degrees, away = compare(poses, scene.c2w)
    assert degrees.max() < 1.0 and away.max() < 0.01
    assert not any("inside the masks" in line for line in said)  # the table fixes the cameras of each position
    assert (scene.c2w[:10, 2, 3] > 0).all() and (scene.c2w[10:, 2, 3] < 0).all()  # upright as in the first position
    assert np.linalg.norm(scene.points.xyz, axis=1).max() < 1.2  # none on the table
    shutil.rmtree(tmp_path / "photos/top")
    refuse("are in a subfolder .bottom.; give that", tmp_path)


@pytest.mark.slow
def test_positions_without_a_common_side_are_not_joined(tmp_path):
    photographs(tmp_path / "photos", 5, lambda name: len(name))
    words = "positions bottom and top cannot be joined: 0 pairs of .* matches or more inside the masks; 30 points "
    refuse(words, tmp_path)
    assert not (tmp_path / "scene/cameras_sphere.npz").exists()


def test_positions_need_masks_that_do_not_follow_from_cameras(tmp_path):
    for name in ("1", "2"):
        for index in range(3):
            (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
            write_image(tmp_path / "photos" / name / f"{index}.png", picture(seed=10 * int(name) + index))
    start = "photographs of 2 positions .1 and 2. are joined by the object alone, so each photograph needs a mask"
    refuse(start, tmp_path)
    refuse(start, tmp_path, masks="grabcut")
    refuse("leave out --cameras", tmp_path, is_panorama=True)
    (tmp_path / "photos/masks/2").mkdir(parents=True)
    (tmp_path / "photos/1/mask").mkdir()
    for index in range(3):
        for folder in ("masks/2", "1/mask"):
            write_image(tmp_path / "photos" / folder / f"{index}.png", np.full((20, 30), 255 * (index % 2), np.uint8))
    found = find_photographs(tmp_path / "photos")
    assert found.names == [f"{name}/{index}.png" for name in "12" for index in range(3)]
    masks = [found.masks[path].relative_to(tmp_path / "photos").as_posix() for path in found.paths]
    assert masks == [f"{folder}/{index}.png" for folder in ("1/mask", "masks/2") for index in range(3)]
    assert masks_beside(tmp_path / "photos", found)[0] == str(tmp_path / "photos")
    assert notes_of(tmp_path / "photos", found.paths) == []
    (tmp_path / "photos/2/raw").mkdir()
    (tmp_path / "photos/3/all").mkdir(parents=True)
    for name in ("2/raw", "3/all"):
        shutil.copy(tmp_path / "photos/1/0.png", tmp_path / "photos" / name)
    note = f"{tmp_path / 'photos'}: 2/raw and 3/all: left out, photographs in subfolders; move them to the others"
    assert [note.removeprefix(f"{tmp_path / 'photos'}: ")] == notes_of(tmp_path / "photos", found.paths)
    (tmp_path / "photos/1/mask/0.png").unlink()
    refuse(r"each photograph needs a mask \(1/0.png have none\)", tmp_path)
    with pytest.raises(UserError, match="the first is 1/0.jpg; name its mask 1/0.png"):
        required_mask_files(tmp_path / "photos/masks", ["1/0.jpg", "2/0.jpg"], "--masks ", "name its mask {stem}.png")
    shutil.copy(tmp_path / "photos/1/0.png", tmp_path / "photos/2/7.png")
    with pytest.raises(UserError, match="2/7.png are photographs of another subfolder, too"):
        find_photographs(tmp_path / "photos")


def test_each_photograph_is_matched_with_those_of_the_other_position():
    rng = np.random.default_rng(0)
    own = rng.random((2, 40, 128)).astype(np.float32)
    features = [own[view // 30] / np.linalg.norm(own[view // 30], axis=1)[:, None] for view in range(60)]
    across = [pair for pair in similar_pairs(features, ["a"] * 30 + ["b"] * 30) if pair[0] < 30 <= pair[1]]
    assert {view for pair in across for view in pair} == set(range(60))
    assert len([pair for pair in similar_pairs(features) if pair[0] < 30 <= pair[1]]) == 1


def test_the_subfolder_of_a_photograph_is_its_position():
    assert [position_of(Frame("0.png", source, 1, 1, None).source) for source in ("a.jpg", "top/a.jpg")] == ["", "top"]

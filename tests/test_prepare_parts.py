"""The parts of the preparation, each against an oracle of its own."""

import sys
import types

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps
from scipy.spatial.transform import Rotation

from data.cameras import pixels_to_rays
from data.capture import SparsePoints
from data.config import DatasetConfig
from data.errors import UserError
from data.images import read_image, write_image
from data.prepare import masks, matching, video
from data.prepare.exif import focal_pixels, read_exif, upright
from data.prepare.frames import MAX_SIDE, Frame, copy_pictures, copy_video, find_pictures, groups
from data.prepare.progress import Bar
from data.prepare.sheet import contact_sheet
from data.prepare.steps import Steps
from data.readers import load_scene
from data.scene import Scene
from data.writers.neus import camera_matrices, write_neus_scene


def picture(height=20, width=30, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save_with_exif(path, pixels, orientation=None, focal=None):
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    if focal is not None:
        exif.get_ifd(0x8769)[0xA405] = focal
    Image.fromarray(pixels).save(path, exif=exif)


# ---- EXIF ----


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_are_those_of_pillow(tmp_path, orientation):
    save_with_exif(tmp_path / "a.png", picture(), orientation)
    with Image.open(tmp_path / "a.png") as stored:
        expected = np.asarray(ImageOps.exif_transpose(stored))
    assert read_exif(tmp_path / "a.png")[0] == orientation
    assert np.array_equal(upright(picture(), orientation), expected)


def test_a_focal_length_of_50_mm_sees_40_degrees_across_the_film(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), focal=50)
    (_, focal) = read_exif(tmp_path / "a.jpg")
    pixels = focal_pixels(focal, (3600, 2400))
    assert np.degrees(2 * np.arctan(1800 / pixels)) == pytest.approx(39.6, abs=0.05)


@pytest.mark.parametrize("orientation, focal", [(0, 0), (9, 1), (77, 65000)])
def test_wrong_entries_of_exif_count_as_none(tmp_path, orientation, focal):
    save_with_exif(tmp_path / "a.jpg", picture(), orientation, focal)
    assert read_exif(tmp_path / "a.jpg") == (1, None)


def test_a_damaged_exif_block_counts_as_none(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), 6, 28)
    content = bytearray((tmp_path / "a.jpg").read_bytes())
    start = content.index(b"Exif") + 6
    for seed in range(40):
        damaged = content.copy()
        damaged[start : start + 60] = np.random.default_rng(seed).bytes(60)
        (tmp_path / "b.jpg").write_bytes(damaged)
        orientation, _ = read_exif(tmp_path / "b.jpg")
        assert orientation in range(1, 9)


# ---- photographs ----


def copied(folder, paths):
    with Bar("", len(paths)) as bar:
        return [Frame(**frame) for frame in copy_pictures(paths, folder / "out", bar)]


def test_photographs_are_copied_as_they_are_or_turned_upright(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), focal=28)
    save_with_exif(tmp_path / "b.png", picture(seed=1), orientation=6)
    plain, turned = copied(tmp_path, [tmp_path / "a.jpg", tmp_path / "b.png"])
    assert (tmp_path / "out" / plain.name).read_bytes() == (tmp_path / "a.jpg").read_bytes()
    assert np.array_equal(read_image(tmp_path / "out" / turned.name), np.rot90(picture(seed=1), -1))
    assert (turned.width, turned.height) == (20, 30)
    assert plain.focal == pytest.approx(28 / 43.2666 * np.hypot(30, 20), rel=1e-5)


def test_large_deep_and_transparent_photographs_become_plain_ones(tmp_path):
    write_image(tmp_path / "large.png", np.full((10, 2 * MAX_SIDE, 3), 7, np.uint8))
    cv2.imwrite(str(tmp_path / "deep.png"), np.full((9, 8, 3), 257 * 50, np.uint16))
    cv2.imwrite(str(tmp_path / "clear.png"), np.full((9, 8, 4), 60, np.uint8))
    frames = copied(tmp_path, [tmp_path / name for name in ("large.png", "deep.png", "clear.png")])
    assert (frames[0].width, frames[0].height) == (MAX_SIDE, 5)
    for frame, value in zip(frames, (7, 50, 60), strict=True):
        pixels = read_image(tmp_path / "out" / frame.name)
        assert pixels.dtype == np.uint8
        assert pixels.shape[2] == 3
        assert (pixels == value).all()


def test_photographs_of_one_size_and_focal_length_share_a_camera():
    frames = [Frame("a", "a", 30, 20, 50.0), Frame("b", "b", 30, 20, 50.0), Frame("c", "c", 20, 30, None)]
    assert [(group.names, group.focal) for group in groups(frames)] == [(("a", "b"), 50.0), (("c",), None)]


# ---- video ----


def write_video(path, frames):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, frames[0].shape[1::-1])
    for frame in frames:
        writer.write(frame)
    writer.release()


@pytest.fixture
def clip(tmp_path):
    """24 frames, blurred but for 3, 10, 12 and 23; the brightness of the corner tells which is which."""
    base = cv2.resize(picture(60, 80, 5), (320, 240), interpolation=cv2.INTER_NEAREST)
    frames = []
    for number in range(24):
        frame = base.copy() if number in (3, 10, 12, 23) else cv2.GaussianBlur(base, (0, 0), 4)
        frame[:40, :40] = 10 * number
        frames.append(frame)
    write_video(tmp_path / "clip.avi", frames)
    return tmp_path / "clip.avi"


def test_the_sharpest_frame_of_each_interval_is_taken(clip, tmp_path):
    with Bar("", None) as bar:
        frames = [Frame(**frame) for frame in copy_video(clip, 4, tmp_path / "out", bar)]
    assert [frame.source for frame in frames] == ["frame 3", "frame 10", "frame 12", "frame 23"]
    corners = [read_image(tmp_path / "out" / frame.name)[10:30, 10:30].mean() for frame in frames]
    assert np.allclose(corners, [30, 100, 120, 230], atol=3)


def test_a_short_video_gives_all_its_frames(clip, tmp_path):
    with Bar("", None) as bar:
        assert len(copy_video(clip, 500, tmp_path / "out", bar)) == 24


def test_sharpest_covers_every_interval_once():
    values = np.random.default_rng(0).random(101)
    chosen = video.sharpest(values, 10)
    assert len(chosen) == 10
    assert all(b > a for a, b in zip(chosen, chosen[1:], strict=False))
    assert int(np.argmax(values)) in chosen


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"RIFF" + b"\xff" * 500 + b"AVI LIST"])
def test_what_is_no_video_is_refused(tmp_path, content):
    (tmp_path / "x.mp4").write_bytes(content)
    with pytest.raises(UserError, match="is no video that OpenCV can decode"):
        find_pictures(tmp_path / "x.mp4")


# ---- matching ----


@pytest.mark.parametrize("count", [3, 17, matching.EXHAUSTIVE_LIMIT])
def test_few_photographs_are_all_compared(count):
    assert len(set(matching.pairs(count, False))) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [3, 12, 80, 400])
def test_a_sequence_is_compared_with_its_neighbours_and_closed(count):
    found = set(matching.pairs(count, True))
    assert all(0 <= i < j < count for i, j in found)
    assert all((i, i + 1) in found for i in range(count - 1))
    assert (0, count - 1) in found
    assert len(found) <= count * (matching.NEIGHBOURS + 9)


def test_what_does_not_hang_together_is_named():
    names = ["a", "b", "c", "d", "e"]
    assert "none of the 5" in matching.why_disconnected(names, {("a", "b"): 14})
    text = matching.why_disconnected(names, {("a", "b"): 50, ("c", "d"): 50})
    assert "2 groups with nothing in common: a, b; c, d" in text
    text = matching.why_disconnected(names, {("a", "b"): 50, ("b", "c"): 50, ("c", "d"): 20})
    assert text.startswith("1 of 5 photographs have too few") and text.endswith(": e")
    linked = {("a", "b"): 50, ("b", "c"): 50, ("c", "d"): 50, ("d", "e"): 16}
    assert "d and e" in matching.why_disconnected(names, linked)


# ---- masks ----


def disc(colour=(200, 30, 40), backdrop=(30, 160, 60), noise=6):
    y, x = np.mgrid[:120, :160]
    truth = (x - 80) ** 2 + (y - 60) ** 2 < 35**2
    rgb = np.where(truth[..., None], colour, backdrop) + np.random.default_rng(0).normal(0, noise, (120, 160, 3))
    return np.clip(rgb, 0, 255).astype(np.uint8), truth


def overlap(mask, truth):
    return np.sum((mask > 127) & truth) / np.sum((mask > 127) | truth)


def test_a_backdrop_of_one_colour_is_found_and_cut_away(tmp_path):
    rgb, truth = disc()
    write_image(tmp_path / "a.png", rgb)
    assert overlap(masks.finder("colorkey", [tmp_path / "a.png"])(rgb), truth) > 0.95


def test_a_busy_background_is_no_backdrop():
    with pytest.raises(UserError, match="no plain backdrop"):
        masks.backdrop([picture(120, 160)])


def camera(distance=3.0):
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_euler("yxz", [0.4, -0.3, 0.2]).as_matrix()
    pose[:3, 3] = -distance * pose[:3, 2] + 0.2 * pose[:3, 0]
    return np.array([[150.0, 0, 80], [0, 160, 60], [0, 0, 1]]), pose


def test_rays_through_the_outline_touch_the_unit_sphere():
    intrinsics, pose = camera()
    origins, directions = pixels_to_rays(masks.sphere_outline(intrinsics, pose), intrinsics, pose)
    closest = np.linalg.norm(np.cross(origins, directions), axis=1)
    assert np.allclose(closest, 1.0, atol=1e-9)


def test_grabcut_finds_what_differs_from_outside_the_sphere():
    rgb, truth = disc()
    pose = np.eye(4)
    pose[2, 3] = -3.0
    mask = masks.grab_cut(rgb, np.array([[130.0, 0, 80], [0, 130, 60], [0, 0, 1]]), pose)
    assert overlap(mask, truth) > 0.9


def test_a_sphere_that_fills_the_picture_leaves_nothing_to_cut():
    rgb, _ = disc()
    intrinsics = np.array([[900.0, 0, 80], [0, 900, 60], [0, 0, 1]])
    pose = np.eye(4)
    pose[2, 3] = -3.0
    assert (masks.grab_cut(rgb, intrinsics, pose) == 255).all()


def test_masks_are_found_by_stem_or_whole_name(tmp_path):
    for name in ("a.png", "b.jpg.png", "c.JPG"):
        write_image(tmp_path / name, np.zeros((4, 4), np.uint8))
    found = masks.mask_files(tmp_path, ["a.jpg", "b.jpg", "c.png"])
    assert [path.name for path in found] == ["a.png", "b.jpg.png", "c.JPG"]
    with pytest.raises(UserError, match="1 of 2 photographs have no mask, d.jpg first; name it d.png"):
        masks.mask_files(tmp_path, ["a.jpg", "d.jpg"])


def test_a_mask_is_turned_with_its_photograph(tmp_path):
    save_with_exif(tmp_path / "a.jpg", picture(), orientation=6)
    stored = np.zeros((20, 30), np.uint8)
    stored[2:5, 7:20] = 255
    write_image(tmp_path / "stored.png", stored)
    write_image(tmp_path / "upright.png", np.rot90(stored, -1).copy())
    for name in ("stored.png", "upright.png"):
        mask = masks.read_mask(tmp_path / name, (20, 30), tmp_path / "a.jpg")
        assert np.array_equal(mask, np.rot90(stored, -1))


def test_a_mask_of_another_size_is_refused(tmp_path):
    write_image(tmp_path / "a.png", picture())
    write_image(tmp_path / "m.png", np.zeros((7, 9), np.uint8))
    with pytest.raises(UserError, match="m.png: is 9x7 pixels and does not fit the photograph a.png"):
        masks.read_mask(tmp_path / "m.png", (30, 20), tmp_path / "a.png")


def test_rembg_is_asked_for_only_where_it_and_its_model_are_there(monkeypatch, tmp_path):
    monkeypatch.setenv("U2NET_HOME", str(tmp_path))
    monkeypatch.setattr(masks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="the package rembg is missing"):
        masks.require_rembg()
    monkeypatch.setattr(masks.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(UserError, match="its model u2net.onnx is not in"):
        masks.require_rembg()
    (tmp_path / "u2net.onnx").touch()
    masks.require_rembg()
    fake = types.SimpleNamespace(
        new_session=lambda name: name,
        remove=lambda rgb, session, only_mask: Image.fromarray(np.full(rgb.shape[:2], 9, np.uint8)),
    )
    monkeypatch.setitem(sys.modules, "rembg", fake)
    assert (masks.finder("rembg", [])(picture()) == 9).all()


def test_the_contact_sheet_dims_what_is_cut_away():
    rgb = np.full((100, 200, 3), 200, np.uint8)
    mask = np.zeros((100, 200), np.uint8)
    mask[:, :100] = 255
    sheet = contact_sheet([rgb] * 5, [mask] * 5)
    assert sheet.shape == (400, 600, 3)
    assert (sheet[50, 50] == 200).all()
    assert (sheet[50, 150] == 60).all()


# ---- steps ----


def test_steps_are_skipped_until_their_inputs_change(tmp_path):
    ran = []

    def run(inputs):
        steps = Steps(tmp_path, inputs, str)
        return [steps.run(name, (), lambda name=name: ran.append(name) or len(ran)) for name in inputs]

    assert run({"a": 1, "b": 1}) == [1, 2]
    assert run({"a": 1, "b": 1}) == [1, 2]
    assert run({"a": 1, "b": 2}) == [1, 3]
    assert run({"a": 2, "b": 2}) == [4, 5]
    assert ran == ["a", "b", "b", "a", "b"]


def test_a_step_that_failed_runs_again_and_loses_its_outputs_unless_it_can_go_on(tmp_path):
    was_there = []

    def work():
        was_there.append((tmp_path / "out").exists())
        (tmp_path / "out").mkdir(exist_ok=True)
        raise UserError("no")

    for is_resumable in (False, False, True):
        with pytest.raises(UserError, match="no"):
            Steps(tmp_path, {"a": 1}, str).run("a", ("out",), work, is_resumable)
    assert was_there == [False, False, True]


@pytest.mark.parametrize("stamp", ["", "[]", "{", '{"key": 3}', "[" * 100000])
def test_a_damaged_stamp_means_that_nothing_is_done(tmp_path, stamp):
    (tmp_path / "a.json").write_text(stamp)
    assert Steps(tmp_path, {"a": 1}, str).run("a", (), lambda: 5) == 5


# ---- the scene folder ----


def similarity():
    matrix = np.eye(4)
    matrix[:3, :3] = 2.5 * Rotation.from_euler("xyz", [0.3, 1.0, -0.4]).as_matrix()
    matrix[:3, 3] = [1.0, -7.0, 3.0]
    return matrix


def scene(views=4):
    rng = np.random.default_rng(2)
    poses, matrices = [], []
    for view in range(views):
        intrinsics, pose = camera(2.0 + 0.3 * view)
        turn = np.eye(4)
        turn[:3, :3] = Rotation.from_euler("z", view).as_matrix()
        poses.append(turn @ pose)
        matrices.append(intrinsics + np.diag([3.0 * view, view, 0]))
    points = SparsePoints(rng.normal(size=(50, 3)), np.full(50, 3), np.full(50, 0.5), picture(1, 50)[0])
    return Scene(
        name="s",
        image_names=tuple(f"{view}.png" for view in range(views)),
        images=tuple(picture(40 + view, 60, view) for view in range(views)),
        masks=tuple(np.full((40 + view, 60), 255, np.uint8) for view in range(views)),
        intrinsics=np.array(matrices),
        c2w=np.array(poses),
        scene_to_world=similarity(),
        bbox_min=-np.ones(3),
        bbox_max=np.ones(3),
        points=points,
    )


def test_a_written_scene_is_read_back(tmp_path):
    written = scene()
    write_neus_scene(tmp_path, written)
    found = load_scene(DatasetConfig(str(tmp_path), "cameras_sphere.npz", "cameras_sphere.npz"))
    assert np.allclose(found.intrinsics, written.intrinsics, atol=1e-6)
    assert np.allclose(found.c2w, written.c2w, atol=1e-9)
    assert np.allclose(found.scene_to_world, written.scene_to_world)
    for view in range(written.n_views):
        assert np.array_equal(found.images[view], written.images[view])
        assert np.array_equal(found.masks[view], written.masks[view])


def test_the_camera_file_has_rigid_cameras_and_true_inverses():
    written = scene()
    matrices = camera_matrices(written.intrinsics, written.c2w, written.scene_to_world)
    for view in range(written.n_views):
        for kind in ("world_mat", "scale_mat", "camera_mat"):
            assert np.allclose(matrices[f"{kind}_{view}"] @ matrices[f"{kind}_inv_{view}"], np.eye(4), atol=1e-9)
        rigid = np.linalg.inv(matrices[f"camera_mat_{view}"]) @ matrices[f"world_mat_{view}"]
        assert np.allclose(rigid[:3, :3] @ rigid[:3, :3].T, np.eye(3), atol=1e-9)


def test_the_points_are_written_in_world_coordinates(tmp_path):
    import trimesh

    written = scene()
    write_neus_scene(tmp_path, written)
    cloud = trimesh.load(tmp_path / "sparse" / "points.ply")
    linear, shift = similarity()[:3, :3], similarity()[:3, 3]
    assert np.allclose(cloud.vertices, written.points.xyz @ linear.T + shift, atol=1e-4)
    assert np.array_equal(cloud.colors[:, :3], written.points.rgb)

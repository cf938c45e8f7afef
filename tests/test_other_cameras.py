"""Camera files of OpenMVG, OpenSfM and Bundler, written here from cameras with known distortion."""

import json

import numpy as np
import pytest
from lens_truth import FISHEYE, K1, K2, K3, K4, P1, P2, PLACES, PLANE, Truth, require_same
from scipy.spatial.transform import Rotation
from synthetic_scene import NAMES, VIEWS, photographs, read

from data.errors import SceneError


def openmvg(truth, lens, **more):
    def wrapped(data):
        return {"polymorphic_id": 2147483649, "ptr_wrapper": {"id": 2147483650, "data": data}}

    own = {"width": truth.width, "height": truth.height, "focal_length": truth.focal[0]}
    own |= {"principal_point": truth.centre.tolist(), **lens}
    views = [
        {"local_path": "", "filename": name, "id_view": n, "id_intrinsic": 0, "id_pose": n}
        for n, name in enumerate(NAMES)
    ]
    points = [{"X": place.tolist(), "observations": [{"key": 0, "value": {}}]} for place in PLACES]
    poses = [
        {"key": n, "value": {"rotation": w2c[:3, :3].tolist(), "center": c2w[:3, 3].tolist()}}
        for n, (w2c, c2w) in enumerate(zip(truth.w2c, truth.c2w, strict=True))
    ]
    return {
        "sfm_data_version": "0.3",
        "root_path": "/home/x/images",
        "views": [{"key": n, "value": wrapped(view)} for n, view in enumerate(views)],
        "intrinsics": [{"key": 0, "value": wrapped(own)}],
        "extrinsics": poses,
        "structure": [{"key": n, "value": point} for n, point in enumerate(points)],
        **more,
    }


@pytest.mark.parametrize(
    ("lens", "distortion"),
    [
        ({}, ()),
        ({"disto_k1": [K1]}, (K1, 0, 0, 0)),
        ({"disto_k3": [K1, K2, K3]}, (K1, K2, 0, 0, K3)),
        ({"disto_t2": [K1, K2, K3, P1, P2]}, PLANE),
        ({"fisheye": [K1, K2, K3, K4]}, FISHEYE),
    ],
)
def test_openmvg(lens, distortion, tmp_path):
    truth = Truth(tmp_path, distortion, "fisheye" in lens, centre=(101.3, 98.2))
    content = openmvg(truth, lens)
    (tmp_path / "sfm_data.json").write_text(json.dumps(content))
    parsed = require_same(tmp_path, truth)
    assert (parsed.points.n_views == 1).all()
    wrapper = content["intrinsics"][0]["value"]["ptr_wrapper"]
    own = {key: value for key, value in wrapper["data"].items() if key not in lens}
    wrapper["data"] = {"value0": own, **lens}  # as older versions wrote it
    (tmp_path / "sfm_data.json").write_text(json.dumps(content))
    require_same(tmp_path, truth)


@pytest.mark.parametrize("lens", [{"disto_k5": [0, 0.1]}, {"k4": 0.1}, {"disto_k1": [0.1], "disto_t2": [0.1] * 5}])
def test_lenses_of_openmvg_that_are_not_read_are_named(lens, tmp_path):
    (tmp_path / "sfm_data.json").write_text(json.dumps(openmvg(Truth(tmp_path), lens)))
    with pytest.raises(SceneError, match=f"{list(lens)[-1]} of its lens cannot be applied"):
        read(tmp_path)


@pytest.mark.parametrize("place", ["../images", "/home/x/images", r"..\photos"])
def test_folders_of_another_place(place, tmp_path):
    truth = Truth(tmp_path)
    content = openmvg(truth, {})
    for view in content["views"]:
        view["value"]["ptr_wrapper"]["data"]["local_path"] = place
    (tmp_path / "sfm_data.json").write_text(json.dumps(content))
    require_same(tmp_path, truth)
    (tmp_path / "sfm_data.json").unlink()
    bundler(tmp_path, truth)
    (tmp_path / "list.txt").write_text("\n".join(f"{place}/{name}" for name in [*NAMES, "last.png"]))
    require_same(tmp_path, truth)


def test_openmvg_without_poses_or_pinholes(tmp_path):
    truth = Truth(tmp_path)
    content = openmvg(truth, {}, extrinsics=[])
    (tmp_path / "sfm_data.json").write_text(json.dumps(content))
    with pytest.raises(SceneError, match="no photograph has a pose"):
        read(tmp_path)
    content = openmvg(truth, {})
    del content["intrinsics"][0]["value"]["ptr_wrapper"]["data"]["focal_length"]
    (tmp_path / "sfm_data.json").write_text(json.dumps(content))
    with pytest.raises(SceneError, match="no pinhole or fisheye"):
        read(tmp_path)


def opensfm(truth, kind, **lens):
    shots = {
        name: {
            "camera": "v2 x",
            "rotation": Rotation.from_matrix(w2c[:3, :3]).as_rotvec().tolist(),
            "translation": w2c[:3, 3].tolist(),
        }
        for name, w2c in zip(NAMES, truth.w2c, strict=True)
    }
    own = {"projection_type": kind, "width": truth.width, "height": truth.height, **lens}
    points = {str(n): {"color": [1, 2, 3], "coordinates": place.tolist()} for n, place in enumerate(PLACES)}
    return {"cameras": {"v2 x": own}, "shots": shots, "points": points}


@pytest.mark.parametrize(
    ("kind", "distortion"),
    [
        ("perspective", (K1, K2, 0, 0)),
        ("radial", (K1, K2, 0, 0)),
        ("simple_radial", (K1, 0, 0, 0)),
        ("brown", PLANE),
        ("fisheye", (K1, K2, 0, 0)),
        ("fisheye_opencv", FISHEYE),
    ],
)
def test_opensfm(kind, distortion, tmp_path):
    fish, is_central = kind.startswith("fisheye"), kind in ("perspective", "fisheye")
    truth = Truth(tmp_path, distortion, fish, *(() if is_central else ((101.3, 98.2), (210.0, 214.2))))
    c_x, c_y = (truth.centre - truth.middle) / truth.longer
    fx, fy = truth.focal / truth.longer
    lens = {"focal": fx} if is_central else {"focal_x": fx, "focal_y": fy, "c_x": c_x, "c_y": c_y}
    names = ("k1", "k2", "k3", "k4") if fish else ("k1", "k2", "p1", "p2", "k3")
    lens |= dict(zip(names, distortion, strict=False))
    other = {"cameras": {}, "shots": {}, "points": {}}
    (tmp_path / "reconstruction.json").write_text(json.dumps([other, opensfm(truth, kind, **lens)]))
    require_same(tmp_path, truth)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("brown", {"k4": 0.1}, "k4 of its lens cannot be applied"),
        ("fisheye62", {}, "its camera fisheye62 is not read"),
        ("spherical", {}, "its camera spherical is not read"),
        (None, {}, "its camera is not in the file"),
    ],
)
def test_cameras_of_opensfm_that_are_not_read(kind, change, words, tmp_path):
    content = opensfm(Truth(tmp_path), kind or "brown", focal=1.0, **change)
    if kind is None:
        content["cameras"] = {}
    (tmp_path / "reconstruction.json").write_text(json.dumps([content]))
    with pytest.raises(SceneError, match=words):
        read(tmp_path)


@pytest.mark.parametrize("content", [{}, [], [1], [{"shots": []}], [{"shots": {"a": {"camera": "b"}}}]])
def test_opensfm_that_cannot_be_read(content, tmp_path):
    photographs(tmp_path, NAMES)
    (tmp_path / "reconstruction.json").write_text(json.dumps(content))
    with pytest.raises(SceneError, match=r"reconstruction\.json"):
        read(tmp_path)


def bundler(folder, truth, place="bundle.out", names="list.txt", after=" 0 500.0"):
    flip = np.diag([1.0, -1.0, -1.0])
    lines = ["# Bundle file v0.3", f"{VIEWS + 1} {len(PLACES)}"]
    for w2c in truth.w2c:
        rows = [(truth.focal[0], *truth.distortion[:2]), *(flip @ w2c[:3, :3]), flip @ w2c[:3, 3]]
        lines += [" ".join(f"{value:.12g}" for value in row) for row in rows]
    lines += ["0 0 0"] * 5  # not registered
    for place_of in PLACES:
        lines += [" ".join(map(str, place_of)), "10 20 30", "2 0 5 1.5 -2.5 1 7 3.5 4.5"]
    for path in (folder / place, folder / names):
        path.parent.mkdir(exist_ok=True)
    (folder / place).write_text("\n".join(lines))
    (folder / names).write_text("\n".join(f"./images/{name}{after}" for name in [*NAMES, "last.png"]))


@pytest.mark.parametrize(
    ("place", "names", "after"),
    [
        ("bundle/bundle.out", "list.txt", " 0 500.0"),
        ("bundle.rd.out", "list.txt", ""),
        ("bear.bundle.out", "bear.list.txt", ""),
    ],
)
def test_bundler(place, names, after, tmp_path):
    truth = Truth(tmp_path, (K1, K2, 0, 0))
    bundler(tmp_path, truth, place, names, after)
    parsed = require_same(tmp_path, truth)
    assert (parsed.points.n_views == 2).all() and (parsed.points.rgb == [10, 20, 30]).all()
    assert any("without a pose, and left out: ./images/last.png" in note for note in parsed.notes)


def test_bundler_that_cannot_be_read(tmp_path):
    truth = Truth(tmp_path)
    bundler(tmp_path, truth)
    content = (tmp_path / "bundle.out").read_text()
    for wrong, words in ((content[:-50], "truncated or damaged"), (content[5:], "does not begin with '# Bundle")):
        (tmp_path / "bundle.out").write_text(wrong)
        with pytest.raises(SceneError, match=words):
            read(tmp_path)
    (tmp_path / "list.txt").unlink()
    with pytest.raises(SceneError, match=r"has no list\.txt"):
        (tmp_path / "bundle.out").write_text(content)
        read(tmp_path)

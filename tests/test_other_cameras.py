"""Camera files of OpenMVG, Meshroom, OpenSfM and Bundler, written here from cameras with known distortion."""

import json

import cv2
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from synthetic_scene import NAMES, VIEWS, photographs, read

from data.errors import SceneError
from data.io.images import read_image

PLACES = np.array([[4.0, -7.0, 1.5], [4.6, -6.5, 1.9], [3.1, -7.9, 1.0]])
K1, K2, K3, P1, P2, K4 = 0.05, -0.02, 0.01, 0.003, -0.002, 0.004
PLANE, FISHEYE = (K1, K2, P1, P2, K3), (K1, K2, K3, K4)


class Truth:
    """The true cameras with a lens of one's own: pixels count from the centre of the first pixel."""

    def __init__(self, folder, distortion=(), fish=False, centre=None, focal=None):
        self.posed = photographs(folder, NAMES)
        self.height, self.width = read_image(self.posed[0].path).shape[:2]
        self.longer = max(self.width, self.height)
        self.middle = np.array([self.width - 1, self.height - 1]) / 2
        own = self.posed[0].lens.intrinsics
        self.focal = np.array([own[0, 0]] * 2 if focal is None else focal)
        self.centre = np.array(self.middle if centre is None else centre, dtype=float)
        self.distortion, self.fish = np.array(distortion or (0.0,) * 4), fish
        self.w2c = [np.linalg.inv(image.c2w) for image in self.posed]
        self.c2w = [image.c2w for image in self.posed]

    def pixels(self, view):
        intrinsics = np.array([[self.focal[0], 0, self.centre[0]], [0, self.focal[1], self.centre[1]], [0, 0, 1.0]])
        return projected(self.w2c[view], intrinsics, self.distortion, self.fish)


def projected(w2c, intrinsics, distortion, fish):
    rotation, centre = cv2.Rodrigues(w2c[:3, :3])[0], w2c[:3, 3]
    project = cv2.fisheye.projectPoints if fish else cv2.projectPoints
    coefficients = np.array(distortion if len(distortion) else (0.0,) * 4)
    return project(PLACES[:, None], rotation, centre, intrinsics, coefficients)[0][:, 0]


def require_same(folder, truth):
    """The scene shows the places where the truth does, and its own points are the places."""
    parsed, scene = read(folder)
    assert len(parsed.images) == len(scene.images) == VIEWS
    for view, image in enumerate(parsed.images):
        found = projected(np.linalg.inv(image.c2w), image.lens.intrinsics, image.lens.distortion, image.lens.is_fisheye)
        assert np.abs(found - truth.pixels(view)).max() < 0.01, image.path.name
    if parsed.points is not None:
        assert np.allclose(parsed.points.xyz, PLACES)
    return parsed


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


def meshroom(truth, version, kind, distortion, **lens):
    texts = lambda values: [f"{value:.15g}" for value in np.ravel(values)]  # noqa: E731
    own = {
        "intrinsicId": "7",
        "width": str(truth.width),
        "height": str(truth.height),
        "sensorWidth": "36",
        "type": kind,
    }
    own |= {
        "distortionParams": texts(distortion) or "",
        "principalPoint": texts(truth.centre - [truth.width / 2, truth.height / 2]),
    }
    return {
        "version": version.split("."),
        "views": [
            {"viewId": str(n), "poseId": str(n), "intrinsicId": "7", "path": f"D:/x/y/{name}"}
            for n, name in enumerate(NAMES)
        ],
        "intrinsics": [own | lens],
        "poses": [
            {"poseId": str(n), "pose": {"transform": {"rotation": texts(w2c[:3, :3].T), "center": texts(c2w[:3, 3])}}}
            for n, (w2c, c2w) in enumerate(zip(truth.w2c, truth.c2w, strict=True))
        ],
        "structure": [{"X": texts(place), "color": ["9", "8", "7"], "observations": ""} for place in PLACES],
    }


@pytest.mark.parametrize(
    ("version", "kind", "own", "distortion"),
    [
        ("1.2.6", "pinhole", (), ()),
        ("1.2.6", "radial1", (K1,), (K1, 0, 0, 0)),
        ("1.2.6", "radial3", (K1, K2, K3), (K1, K2, 0, 0, K3)),
        ("1.2.6", "brown", (K1, K2, K3, P1, P2), PLANE),
        ("1.2.6", "fisheye4", FISHEYE, FISHEYE),
        ("1.2.8", "brown", (K1, K2, K3, P1, P2), PLANE),
    ],
)
def test_meshroom(version, kind, own, distortion, tmp_path):
    truth = Truth(tmp_path, distortion, kind == "fisheye4", centre=(101.3, 98.2))
    lens = {"focalLength": str(truth.focal[0] / truth.width * 36), "pixelRatio": "1"}
    lens |= {"type": "pinhole", "distortionType": kind, "undistortionType": "none"} if version == "1.2.8" else {}
    (tmp_path / "cameras.sfm").write_text(json.dumps(meshroom(truth, version, kind, own, **lens)))
    assert (require_same(tmp_path, truth).points.rgb == [9, 8, 7]).all()


@pytest.mark.parametrize("version", ["1.0.0", "1.2.0", "1.2.1", "1.2.4", "1.2.6", "1.2.11"])
def test_focal_lengths_of_meshroom(version, tmp_path):
    step = tuple(map(int, version.split(".")))
    truth = Truth(tmp_path, centre=(101.3, 98.2), focal=(210.0, 210.0 if step < (1, 2) else 214.2))
    fx, fy = truth.focal
    lens = {"pxFocalLength": str(fx) if step < (1, 2) else [str(fx), str(fy)]}
    if step >= (1, 2, 2):
        ratio = fx / fy if step < (1, 2, 5) else fy / fx
        lens = {"focalLength": str((fx if step < (1, 2, 11) else fy) / truth.width * 36), "pixelRatio": str(ratio)}
    content = meshroom(truth, version, "pinhole", (), **lens)
    if step < (1, 2, 1):
        content["intrinsics"][0]["principalPoint"] = [str(value) for value in truth.centre]
    (tmp_path / "other.sfm").write_text(json.dumps(content))
    require_same(tmp_path, truth)


@pytest.mark.parametrize("change", [{"type": "equidistant"}, {"type": "radial3", "undistortionType": "3deradial4"}])
def test_lenses_of_meshroom_that_are_not_read(change, tmp_path):
    truth = Truth(tmp_path)
    lens = {"focalLength": "40", "distortionType": "none", **change}
    (tmp_path / "cameras.sfm").write_text(json.dumps(meshroom(truth, "1.2.8", "pinhole", (), **lens)))
    with pytest.raises(SceneError, match=r"its lens .* is not read"):
        read(tmp_path)


def test_photographs_of_one_name_in_two_folders(tmp_path):
    content = meshroom(Truth(tmp_path), "1.2.6", "pinhole", (), focalLength="40")
    content["views"][1]["path"] = f"D:/x/z/{NAMES[0]}"
    (tmp_path / "cameras.sfm").write_text(json.dumps(content))
    with pytest.raises(SceneError, match="is listed twice"):
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

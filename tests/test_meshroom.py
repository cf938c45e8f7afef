"""Camera files of Meshroom, written here from cameras with known distortion."""

import json

import numpy as np
import pytest
from lens_truth import FISHEYE, K1, K2, K3, P1, P2, PLACES, PLANE, Truth, require_same
from scipy.spatial.transform import Rotation
from synthetic_scene import NAMES, read

from data.errors import SceneError


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


def test_a_rig_of_meshroom(tmp_path):
    truth = Truth(tmp_path)
    content = meshroom(truth, "1.2.6", "pinhole", (), focalLength=str(truth.focal[0] / truth.width * 36))
    own = [entry["pose"]["transform"] for entry in content["poses"]]
    rig = np.eye(4)  # world to rig
    rig[:3, :3], rig[:3, 3] = Rotation.from_rotvec([0.3, -0.5, 0.7]).as_matrix(), [1, 2, 3]
    inner = [w2c @ np.linalg.inv(rig) for w2c in truth.w2c[:2]]
    poses = [
        {"rotation": matrix[:3, :3].T.ravel().tolist(), "center": np.linalg.inv(matrix)[:3, 3].tolist()}
        for matrix in (rig, *inner)
    ]
    own[0].update(poses[0])
    content["rigs"] = [{"rigId": "5", "subPoses": [{"status": "estimated", "pose": pose} for pose in poses[1:]]}]
    for index, view in enumerate(content["views"][:2]):
        view |= {"poseId": "0", "rigId": "5", "subPoseId": str(index), "isPoseIndependant": "false"}
    (tmp_path / "cameras.sfm").write_text(json.dumps(content))
    require_same(tmp_path, truth)
    content["views"][1]["subPoseId"] = "2"
    (tmp_path / "cameras.sfm").write_text(json.dumps(content))
    with pytest.raises(SceneError, match="its rig has no pose 2"):
        read(tmp_path)


def test_a_sensor_width_that_is_not_known_is_named(tmp_path):
    content = meshroom(Truth(tmp_path), "1.2.6", "pinhole", (), focalLength="40", sensorWidth="-1")
    (tmp_path / "cameras.sfm").write_text(json.dumps(content))
    with pytest.raises(SceneError, match="sensorWidth is -1 and must be above 0"):
        read(tmp_path)


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

"""GPS positions of photographs: metres, up, north, positions that are wrong, and the map grid of meshes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh
from PIL import Image
from test_neus_writer import scene as any_scene

from data.errors import SceneError, UserError
from data.parsed_scene import Lens, ParsedScene, PosedImage, transformed
from data.prepare.gps import east_north_up, read_gps
from data.prepare.load import load_scene
from data.prepare.metric import Known
from data.prepare.world import world_frame
from data.scenes.config import DatasetConfig
from data.scenes.readers.neus import write_neus_scene
from models.mesh.mesh import given_surface, scene_axes
from models.requests import UTM, WORLD

pycolmap = pytest.importorskip("pycolmap")
WGS84 = pycolmap.GPSTransform(pycolmap.GPSTransformEllipsoid.WGS84)
REMARK = "the cameras are estimated without the focal length of EXIF"
LENS = Lens(np.array([[400.0, 0, 239.5], [0, 400.0, 179.5], [0, 0, 1]]), size=(480, 360))
METRES_NORTH, METRES_EAST = 111178.0, 75285.0  # of a degree at 47.5 degrees north
HOME = np.array([47.5, 8.5, 420.0])
FACADE = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]).T  # looks along y, z up


def looking_down(kind, rng):
    """24 cameras 75 m above the ground, in rows of which every second one is turned, or all with the top north."""
    images = []
    for row in range(4):
        for column in range(6):
            sign = 1.0 if kind == "north" or row % 2 == 0 else -1.0
            pose = np.eye(4)
            pose[:3, :3] = np.diag([sign, -sign, -1.0])
            pose[:3, 3] = [20.0 * column, 25.0 * row, 75.0 + rng.normal()]
            images.append(PosedImage(Path(f"{len(images):04d}.jpg"), LENS, pose))
    return ParsedScene("s", Path(), tuple(images))


def turned(scene):
    """The scene in the frame of a mapper: of another unit, place and orientation."""
    change = np.eye(4)
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    change[:3, :3], change[:3, 3] = 0.02 * turn * np.linalg.det(turn), [3.0, -2.0, 1.0]
    return replace(transformed(scene, change, None), frame=None)


def photographs(folder, places, xmp=None):
    """One file for each place: latitude and longitude in degrees, altitude in metres; and with those of XMP."""
    for index, (latitude, longitude, altitude) in enumerate(places):
        exif, info = Image.Exif(), {}
        parts = [(float(int(v)), float(int(v % 1 * 60)), v * 60 % 1 * 60) for v in (abs(latitude), abs(longitude))]
        sides = {1: "N" if latitude >= 0 else "S", 3: "E" if longitude >= 0 else "W"}
        exif[0x8825] = {**sides, 2: parts[0], 4: parts[1], 5: bytes([int(altitude < 0)]), 6: abs(altitude)}
        if xmp is not None:
            names = ("GpsLatitude", "GpsLongtitude", "AbsoluteAltitude")
            told = " ".join(f'drone-dji:{n}="{v:+.9f}"' for n, v in zip(names, xmp[index], strict=True))
            info["xmp"] = f'<rdf:Description {told} drone-dji:RtkFlag="50"/>'.encode()
        Image.new("RGB", (8, 8)).save(folder / f"{index:04d}.jpg", exif=exif, **info)
    return {f"{index:04d}.jpg": folder / f"{index:04d}.jpg" for index in range(len(places))}


def degrees(metres):
    return HOME + metres / [METRES_EAST, METRES_NORTH, 1.0] @ np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1.0]])


def stood(scene, sources):
    """The turned scene in its world frame, with `sources` by image."""
    from data.prepare.frames import Frame

    frames = [Frame(name, path.name, 480, 360, None) for name, path in sources.items()]
    return world_frame(
        turned(scene), Known(), frames, {path.name: path for path in sources.values()}, {"remarks": [REMARK]}
    )


def centers(scene):
    return np.array([image.c2w[:3, 3] for image in scene.images])


@pytest.mark.parametrize("kind", ["north", "rows"])
def test_a_survey_stands_by_its_positions_with_x_east(kind, tmp_path):
    rng = np.random.default_rng(1)
    scene = looking_down(kind, rng)
    sources = photographs(tmp_path, degrees(centers(scene) + rng.normal(0, 1.5, (24, 3)) * [1, 1, 2]))
    found = stood(scene, sources)
    assert found.frame.up_source == "GPS positions of 24 photographs"
    assert found.frame.scale_source == "GPS positions of 24 photographs"
    sign = np.array([image.c2w[0, 0] for image in scene.images])[:, None]
    up, right = (np.array([image.c2w[:3, axis] for image in found.images]) for axis in (2, 0))
    assert (up @ [0, 0, -1]).min() > np.cos(np.radians(3)) and (sign * right @ [1, 0, 0]).min() > np.cos(0.05)
    ours, true = (centers(one) - centers(one).mean(axis=0) for one in (found, scene))
    assert np.linalg.norm(ours - true, axis=1).max() < 4.0


def test_wrong_positions_are_left_out_by_name(tmp_path):
    scene = looking_down("rows", np.random.default_rng(1))
    places = degrees(centers(scene))
    places[[7, 19]], places[3, 2] = 0.0, 0.0
    found = stood(scene, photographs(tmp_path, places))
    (note,) = found.notes
    assert found.frame.notes == (REMARK, note)
    assert note == "GPS positions that do not fit the cameras are left out: 0003.jpg, 0007.jpg and 0019.jpg"
    assert found.frame.reference.left_out == ("0003.jpg", "0007.jpg", "0019.jpg")
    assert np.ptp(centers(found)[:, 0]) == pytest.approx(100.0, rel=2e-3)


def test_three_positions_across_the_antimeridian_give_metres():
    places = np.array([[-17.0, 179.9999, 10.0], [-17.0, -179.9999, 10.0], [-17.001, -179.9999, 12.0]])
    assert np.allclose(np.abs(np.diff(east_north_up(places), axis=0)), [[21.3, 0, 0], [0, 110.66, 2]], atol=0.1)


def test_positions_that_do_not_fit_give_nothing(tmp_path):
    rng = np.random.default_rng(1)
    scene = looking_down("rows", rng)
    found = stood(scene, photographs(tmp_path, degrees(centers(scene) + rng.normal(0, 60, (24, 3)))))
    assert not found.frame.is_metric and found.frame.reference is None
    assert stood(scene, photographs(tmp_path, degrees(centers(scene)[:2]))).frame.scale_source == ""


def test_xmp_precedes_exif(tmp_path):
    scene = looking_down("rows", np.random.default_rng(1))
    exact = degrees(centers(scene))
    sources = photographs(tmp_path, exact + np.random.default_rng(2).normal(0, 1e-4, (24, 3)), exact)
    assert np.allclose(read_gps(sources["0005.jpg"]), exact[5], rtol=1e-9)
    assert max(stood(scene, sources).frame.reference.accuracy) < 0.02


def test_a_mesh_in_the_map_grid(tmp_path):
    scene = looking_down("rows", np.random.default_rng(1))
    places = degrees(centers(scene))
    found = stood(scene, photographs(tmp_path, places))
    whole = replace(any_scene(), frame=found.frame)
    write_neus_scene(tmp_path, whole)
    reference = json.loads((tmp_path / "reference.json").read_text())
    assert (reference["crs"], reference["zone"]) == ("EPSG:32632", "32N")
    read = load_scene(DatasetConfig(str(tmp_path), "cameras_sphere.npz", "cameras_sphere.npz"))
    assert read.frame.reference == found.frame.reference
    at = np.append(centers(found)[4], 1.0)  # in the world frame
    to_file = scene_axes(".ply", read, UTM, None)
    grid = (to_file.change @ np.linalg.inv(read.scene_to_world) @ at)[:3] + reference["offset"]
    assert grid[:2] == pytest.approx(WGS84.ellipsoid_to_utm(places[4:5])[0][0, :2], abs=0.05)
    assert grid[2] == pytest.approx(places[4, 2], abs=0.05)
    assert to_file.units.startswith("metres of EPSG:32632, minus ")
    with pytest.raises(UserError, match="--frame utm: the scene has no reference.json"):
        scene_axes(".ply", any_scene(), UTM, None)
    trimesh.creation.box().export(tmp_path / "a.ply")
    world = given_surface(read, tmp_path / "a.ply", WORLD, None).mesh.extents
    assert given_surface(read, tmp_path / "a.ply", UTM, None).mesh.extents.max() == pytest.approx(world.max(), rel=0.02)
    (tmp_path / "reference.json").write_text('{"crs": 3}')
    with pytest.raises(SceneError, match="reference.json: is damaged"):
        load_scene(DatasetConfig(str(tmp_path), "cameras_sphere.npz", "cameras_sphere.npz"))


def test_without_positions_a_survey_looks_down_and_a_facade_does_not():
    for kind in ("north", "rows"):
        scene = looking_down(kind, np.random.default_rng(2))
        found = stood(scene, {})
        assert "survey" in found.frame.up_source
        assert all(image.c2w[2, 2] < -0.99 for image in found.images)
    facade = [PosedImage(Path(f"{i}.jpg"), LENS, pose(FACADE, [2.0 * i, 0, 1.6 + 0.1 * (i % 3)])) for i in range(9)]
    found = stood(ParsedScene("s", Path(), tuple(facade)), {})
    assert "level" in found.frame.up_source and all(image.c2w[2, 1] < -0.99 for image in found.images)


def pose(turn, place):
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = turn, place
    return found

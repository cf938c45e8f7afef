"""The page of a reconstruction tells the size of the object, the source of its scale and the errors of the cameras."""

from dataclasses import replace

import trimesh
from synthetic_scene import dataset_config
from test_neus_writer import scene as any_scene

from data.parsed_scene import WorldFrame
from data.writers.neus import write_neus_scene
from models.commands.reconstruction_page import page
from models.commands.reconstruction_size import size_and_cameras

FRAME = WorldFrame("the floor", "4 markers of 0.03 m", 0.001, {"a|b.jpg": 0.5, "c.jpg": 1.25})


def lines(tmp_path, frame, mesh):
    write_neus_scene(tmp_path / "scene", replace(any_scene(), frame=frame))
    return size_and_cameras(dataset_config(tmp_path / "scene"), mesh)


def test_a_metric_scene(tmp_path):
    trimesh.creation.box((0.1, 0.2, 0.34567)).export(tmp_path / "mesh.ply")
    found = lines(tmp_path, FRAME, tmp_path / "mesh.ply")
    assert "- extent of the mesh along x, y, z: 0.1 x 0.2 x 0.3457 m" in found
    assert "- scale: 4 markers of 0.03 m, standard error 0.10%" in found and "- up: the floor" in found
    # Cameras at 5, 5.75, 6.5 and 7.25 m with focal lengths of 150, 153, 156 and 159 pixels.
    assert "- ground sampling distance: 39.6 mm per pixel of the images of the scene folder" in found
    assert found[-4:] == ["| --- | --- |", "| c.jpg | 1.25 |", "| a\\|b.jpg | 0.50 |", ""]
    assert "Mean reprojection error of the SfM points: 0.88 px." in found
    text = page("s", {}, {}, [], size=found)
    assert text.index("## Reliability") < text.index("## Size") < text.index("## Cameras") < text.index("## Metrics")


def test_a_scene_of_unknown_frame_and_no_mesh(tmp_path):
    found = lines(tmp_path, None, None)
    assert any(line.startswith("- scale: not known") for line in found) and "- up: not known" in found
    assert any("ground sampling distance: 0.0396 units" in line for line in found)
    assert not any("extent" in line or "Cameras" in line for line in found)

"""The format of a folder is told from its files; where it cannot be, one sentence says what to do."""

import pytest
from format_samples import blank_png, write_blender_sample, write_llff_sample, write_nerfstudio_sample, write_ngp_sample
from scene_writers import make_views, write_json, write_metashape, write_nerfstudio, write_ngp, write_realitycapture
from synthetic_scene import write_scene

from data.errors import SceneError
from data.scenes.readers import FORMATS, recognise


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def write_colmap(folder, place="sparse/0", suffix=".bin"):
    touch(folder, *(f"{place}/{name}{suffix}" for name in ("cameras", "images", "points3D")))


def refused(folder):
    with pytest.raises(SceneError) as caught:
        recognise(folder)
    message = str(caught.value)
    assert "\n" not in message and str(folder) in message
    return message


def test_each_format_is_recognised(tmp_path):
    writers = {
        "neus": write_scene,
        "blender": write_blender_sample,
        "ngp": write_ngp_sample,
        "nerfstudio": write_nerfstudio_sample,
        "colmap": write_colmap,
        "llff": write_llff_sample,
        "metashape": lambda folder: write_metashape(folder, make_views()),
        "realitycapture": lambda folder: write_realitycapture(folder, make_views()),
        "openmvg": lambda folder: touch(folder, "sfm_data.json"),
        "meshroom": lambda folder: touch(folder, "cameras.sfm"),
        "opensfm": lambda folder: touch(folder, "reconstruction.json"),
        "bundler": lambda folder: touch(folder, "bundle/bundle.out"),
    }
    assert tuple(writers) == FORMATS
    for name, write in writers.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
        assert recognise(tmp_path / name) == name


@pytest.mark.parametrize("place", ["sparse/0", "sparse/2", "sparse", "colmap/sparse/0", "colmap/sparse", "."])
def test_a_colmap_model_is_found_where_its_tools_put_it(tmp_path, place):
    write_colmap(tmp_path, place, ".txt")
    assert recognise(tmp_path) == "colmap"


def test_what_a_scene_was_made_from_does_not_make_it_ambiguous(tmp_path):
    for name in ("neus", "llff"):
        write_colmap(tmp_path / name)
        write_llff_sample(tmp_path / name)
    write_scene(tmp_path / "neus")
    write_ngp(tmp_path / "ngp", make_views(2))
    write_json(tmp_path / "ngp" / "transforms_test.json", {})
    found = {name: recognise(tmp_path / name) for name in ("neus", "llff", "ngp")}
    assert found == {"neus": "neus", "llff": "colmap", "ngp": "ngp"}  # COLMAP knows the lens


def test_a_table_of_realitycapture_is_told_from_other_tables(tmp_path):
    touch(tmp_path, "images/a.png", "cameras.csv")
    assert "no cameras" in refused(tmp_path)
    names = "#name,x,y,alt,heading,pitch,roll,f,px,py,k1,k2,k3,k4,t1,t2\n"
    for head in (names, "\ufeff#cameras 1\r\n" + names):
        (tmp_path / "cameras.csv").write_text(head)
        assert recognise(tmp_path) == "realitycapture"


def test_a_folder_of_two_formats_asks_for_the_type(tmp_path):
    write_nerfstudio(tmp_path, make_views(1))
    write_scene(tmp_path)
    message = refused(tmp_path)
    assert "image/ with cameras_sphere.npz (neus) and transforms.json (nerfstudio)" in message
    assert "set dataset.type to one of neus, nerfstudio" in message


def test_photographs_alone_lead_to_prepare(tmp_path):
    blank_png(tmp_path / "flat/IMG_1.PNG", 4, 4)
    message = refused(tmp_path / "flat")
    assert f"no cameras; estimate them first with --mode prepare --images {tmp_path / 'flat'}" in message
    touch(tmp_path / "film", "walk.MP4")
    assert "contains a video but no cameras" in refused(tmp_path / "film")


def test_anything_else_is_said_with_what_it_holds(tmp_path):
    touch(tmp_path, "notes.txt", "mesh.ply")
    message = refused(tmp_path)
    assert "it contains mesh.ply, notes.txt" in message and all(name in message for name in FORMATS)

"""XMP and CSV files of RealityCapture, XML files of Metashape: their cameras, and what may not be in them is named."""

import dataclasses
import re

import numpy as np
import pytest
from format_samples import blank_png
from scene_writers import make_views, write_metashape, write_realitycapture, write_realitycapture_table
from synthetic_scene import dataset_config

from data.errors import SceneError
from data.prepare.load import load_scene
from data.scenes.readers.realitycapture import read_realitycapture

VIEWS = [dataclasses.replace(view, p=(0.0, 0.0)) for view in make_views()]
# One camera as RealityCapture wrote it to both files, published by a user, the last number of the matrix cut short:
# https://forums.unrealengine.com/t/different-rotation-of-cameras-in-xmp-and-csv/710449
PUBLISHED_XMP = """0.982594073038806 0.185426733553445 -0.0112166890261935 -0.032113633044729 0.11008102707942
    -0.993403685341366 -0.18296885582437 0.976472781986697 0.114"""
PUBLISHED_ANGLES = "163.736597399311,83.4154313461628,174.386496244756"


@pytest.fixture
def folder(tmp_path):
    write_realitycapture(tmp_path, VIEWS)
    return tmp_path


def test_a_table_gives_the_cameras_that_were_written_and_those_of_xmp(folder):
    write_realitycapture_table(folder, VIEWS)
    with_xmp = read_realitycapture(folder, None)
    assert with_xmp.source == folder / "images" and "cameras.csv: not read" in with_xmp.notes[0]
    for path in folder.glob("images/*.xmp"):
        path.unlink()
    with_table = read_realitycapture(folder, None)
    assert with_table.source == folder / "cameras.csv" and not with_table.notes
    for view, one, other in zip(VIEWS, with_table.images, with_xmp.images, strict=True):
        axes = np.stack([view.right, view.down, view.forward, view.centre], axis=1)
        np.testing.assert_allclose(one.c2w[:3], axes, atol=1e-12)
        np.testing.assert_allclose(one.c2w, other.c2w, atol=1e-12)
        np.testing.assert_allclose(one.lens.intrinsics, other.lens.intrinsics, atol=1e-9)
        assert (one.path, one.lens.distortion, one.lens.size) == (other.path, other.lens.distortion, view.size)


def test_a_camera_that_the_program_wrote_to_both_files_is_the_same(folder, tmp_path):
    path = folder / "images" / "view_0.xmp"
    path.write_text(re.sub("(?<=<xcr:Rotation>)[^<]*", PUBLISHED_XMP, path.read_text()))
    expected = read_realitycapture(folder, None).images[0].c2w[:3, :3]
    blank_png(tmp_path / "other" / "a.png", 8, 6)
    text = f"#name,x,y,alt,heading,pitch,roll,f\na.png,1,2,3,{PUBLISHED_ANGLES},20\n"
    (tmp_path / "other" / "export.csv").write_text(text)
    (found,) = read_realitycapture(tmp_path / "other", None).images
    np.testing.assert_allclose(found.c2w[:3, :3], expected, atol=1e-4)
    assert found.c2w[:3, 3].tolist() == [1, 2, 3] and found.lens.distortion == ()
    assert found.lens.intrinsics == pytest.approx(np.array([[8 * 20 / 36, 0, 3.5], [0, 8 * 20 / 36, 2.5], [0, 0, 1]]))


def test_photographs_and_rows_without_each_other_are_left_out(folder):
    (folder / "images" / "view_2.xmp").unlink()
    scene = load_scene(dataset_config(folder, roi="0 0 0 1"))
    assert scene.n_views == 5 and any("left out: view_2.png" in note for note in scene.notes)
    for path in folder.glob("images/*.xmp"):
        path.unlink()
    refused(folder, "no photograph has an .xmp file beside it, and no .csv file holds cameras")
    write_realitycapture_table(folder, VIEWS)
    (folder / "images" / "view_2.png").unlink()
    table = folder / "cameras.csv"
    head, first, _, *rows = table.read_text().splitlines()
    table.write_text("\n".join(["#cameras 6", head.removeprefix("#"), first, *rows]))
    scene = read_realitycapture(folder, None)
    assert [image.path.stem for image in scene.images] == ["view_0", "view_3", "view_4", "view_5"]
    assert [note.partition(": ")[2] for note in scene.notes] == [
        "without a photograph, and left out: view_2.png",
        "does not name, and left out: view_1.png",
    ]


def refused(folder, message, name="", kind="realitycapture"):
    with pytest.raises(SceneError, match=message) as caught:
        load_scene(dataset_config(folder, roi="0 0 0 1", type=kind))
    assert name in str(caught.value) and "\n" not in str(caught.value)


XMP = [
    ("<x:xmpmeta", "<!DOCTYPE a [<!ENTITY b 'c'>]><x:xmpmeta", "declares a document type"),
    ('"brown3"', '"division"', "distortion model division"),
    ("<xcr:Position>", "<xcr:Position>x ", "Position is 'x .* must be 3 finite numbers"),
]
CSV = [
    ("view_1.png,", "view_0.png,", "view_0.png .* is listed twice"),
    ("view_0.png,", "../view_9.png,", "line 2: its name ../view_9.png leads out of the scene folder"),
    ("view_", "IMG_", r"none of its photographs \(IMG_0.png, .*\) is in"),
    ("view_0.png,", "\udcff", "cannot be read as CSV"),
]


METASHAPE = [
    ("</chunk>", "</chunk><chunk/>", "has 2 chunks"),
    ("<f>", "<k4>0.1</k4><f>", "camera view_0.png: k4 of its frame calibration is not supported"),
    ('label="view_1"', 'label="view_9"', "1 of 6 photographs are missing, the first is view_9"),
    ('sensor_id="1"', 'sensor_id="77"', "its sensor_id names no sensor"),
]


@pytest.mark.parametrize(
    ("writer", "name", "old", "new", "message"),
    [
        *((write_realitycapture, "images/view_0.xmp", *row) for row in XMP),
        *((write_realitycapture_table, "cameras.csv", *row) for row in CSV),
        *((write_metashape, "cameras.xml", *row) for row in METASHAPE),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, writer, name, old, new, message):
    writer(tmp_path, VIEWS)
    content = (tmp_path / name).read_text()
    assert old in content
    count = 1 if writer is write_metashape else -1
    (tmp_path / name).write_text(content.replace(old, new, count), errors="surrogateescape")
    refused(tmp_path, message, name.rpartition("/")[2], "auto" if writer is write_metashape else "realitycapture")


def test_cameras_of_metashape_that_are_not_enabled_are_left_out(tmp_path):
    write_metashape(tmp_path, VIEWS)
    path = tmp_path / "cameras.xml"
    path.write_text(path.read_text().replace('label="view_1"', 'label="view_1" enabled="false"'))
    scene = load_scene(dataset_config(tmp_path, roi="0 0 0 1"))
    assert scene.n_views == 5 and any("not aligned, and left out: not aligned" in note for note in scene.notes)

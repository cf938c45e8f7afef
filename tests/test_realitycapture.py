"""The XMP and CSV files of RealityCapture give the same cameras, and what they may not contain is named."""

import dataclasses

import numpy as np
import pytest
from format_samples import blank_png
from scene_writers import make_views, write_realitycapture, write_realitycapture_table
from synthetic_scene import dataset_config

from data.errors import SceneError
from data.readers.detect import recognise
from data.readers.realitycapture import read_realitycapture
from data.scenes.load import load_scene

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


@pytest.fixture
def table(tmp_path):
    """The CSV file of a scene folder."""
    write_realitycapture_table(tmp_path, VIEWS)
    return tmp_path / "cameras.csv"


def test_a_table_gives_the_cameras_that_were_written_and_those_of_the_xmp_files(folder):
    with_xmp = read_realitycapture(folder, None)
    for path in folder.glob("images/*.xmp"):
        path.unlink()
    write_realitycapture_table(folder, VIEWS)
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
    before, _, rest = path.read_text().partition("<xcr:Rotation>")
    path.write_text(f"{before}<xcr:Rotation>{PUBLISHED_XMP}</xcr:Rotation>{rest.partition('</xcr:Rotation>')[2]}")
    expected = read_realitycapture(folder, None).images[0].c2w[:3, :3]
    blank_png(tmp_path / "other" / "a.png", 8, 6)
    row = f"a.png,1,2,3,{PUBLISHED_ANGLES},20"
    (tmp_path / "other" / "export.csv").write_text(f"#name,x,y,alt,heading,pitch,roll,f\n{row}\n")
    (found,) = read_realitycapture(tmp_path / "other", None).images
    np.testing.assert_allclose(found.c2w[:3, :3], expected, atol=1e-4)
    assert found.c2w[:3, 3].tolist() == [1, 2, 3] and found.lens.distortion == ()
    assert found.lens.intrinsics == pytest.approx(np.array([[8 * 20 / 36, 0, 3.5], [0, 8 * 20 / 36, 2.5], [0, 0, 1]]))


def test_a_camera_whose_angles_are_zero_looks_down_with_north_at_the_top(tmp_path):
    blank_png(tmp_path / "a.jpg", 8, 6)
    for angles, right, forward in (
        ("0,0,0", [1, 0, 0], [0, 0, -1]),
        ("90,90,0", [0, -1, 0], [1, 0, 0]),  # towards the east, level
        ("0,90,90", [0, 1, 0], [-1, 0, 0]),
    ):
        (tmp_path / "a.csv").write_text(f"name,x,y,alt,heading,pitch,roll,f\na,0,0,0,{angles},20\n")
        (found,) = read_realitycapture(tmp_path, None).images
        np.testing.assert_allclose(found.c2w[:3, [0, 2]].T, [right, forward], atol=1e-12)


def test_photographs_and_rows_without_each_other_are_left_out(table):
    (table.parent / "images" / "view_2.png").unlink()
    lines = table.read_text().splitlines()
    table.write_text("#cameras 6\n" + "\n".join([*lines[:2], *lines[3:]]))
    scene = read_realitycapture(table.parent, None)
    assert [image.path.stem for image in scene.images] == ["view_0", "view_3", "view_4", "view_5"]
    assert [note.partition(": ")[2] for note in scene.notes] == [
        "without a photograph, and left out: view_2.png",
        "does not name, and left out: view_1.png",
    ]


def test_xmp_files_are_read_before_a_table(folder):
    write_realitycapture_table(folder, VIEWS)
    scene = read_realitycapture(folder, None)
    assert scene.source == folder / "images" and "cameras.csv: not read" in scene.notes[0]


def test_photographs_without_a_file_are_left_out(folder):
    (folder / "images" / "view_2.xmp").unlink()
    scene = load_scene(dataset_config(folder, roi="0 0 0 1"))
    assert scene.n_views == 5 and any("left out: view_2.png" in note for note in scene.notes)


def test_files_of_another_program_are_not_taken(folder):
    for path in folder.glob("images/*.xmp"):
        path.write_text('<x:xmpmeta xmlns:x="adobe:ns:meta/"/>')
    with pytest.raises(SceneError, match="no cameras"):
        recognise(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<x:xmpmeta", "<!DOCTYPE a [<!ENTITY b 'c'>]><x:xmpmeta", "declares a document type"),
        ("</x:xmpmeta>", "", "cannot be read as XML"),
        ('"brown3"', '"division"', "distortion model division"),
        ("0.0</xcr:Dist", "0.1</xcr:Dist", "t2 = 0, 0, 0.1 is not supported"),
        ('Skew="0"', 'Skew="0.5"', "Skew 0.5 and AspectRatio 1 must be 0 and 1"),
        ('FocalLength35mm="', 'FocalLength35mm="-', "FocalLength35mm is -.* and must be above 0"),
        ("<xcr:Position>", "<xcr:Position>x ", "Position is 'x .* must be 3 finite numbers"),
        ("xcr:Rotation>", "xcr:Other>", "Rotation is '' and must be 9 finite numbers"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(folder, old, new, message):
    path = folder / "images" / "view_0.xmp"
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))
    with pytest.raises(SceneError, match=message) as caught:
        load_scene(dataset_config(folder, roi="0 0 0 1", type="realitycapture"))
    assert "view_0.xmp" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#name", "name", ""),
        ("view_1.png,", "view_0.png,", "view_0.png .* is listed twice"),
        ("view_0.png,", "../view_0.png,", "line 2: its name ../view_0.png leads out of the scene folder"),
        ("view_", "IMG_", r"none of its photographs \(IMG_0.png, .*\) is in"),
        ("view_0.png,", "view_0.png,1,", "line 2 has 17 values and must have 16"),
        ("view_0.png,", "view_0.png,nan", "line 2: x is 'nan.* must be a finite number"),
        ("view_0.png,", 'view_0.png,"', "cannot be read as CSV"),
        ("view_0.png,", "\udcff", "cannot be read as CSV"),
        (",0.0\n", ",0.1\n", "line 2: the distortion model brown3 with k4, t1, t2 = 0, 0, 0.1 is not supported"),
        (",0.0\n", ",\n", "line 2: t2 is '' and must be a finite number"),
    ],
)
def test_a_table_that_cannot_be_used_is_named(table, old, new, message):
    content = table.read_text()
    assert old in content
    table.write_text(content.replace(old, new), errors="surrogateescape")
    if not message:
        assert read_realitycapture(table.parent, None).images
        return
    with pytest.raises(SceneError, match=message) as caught:
        load_scene(dataset_config(table.parent, roi="0 0 0 1"))
    assert "cameras.csv" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_text(path.read_text().splitlines()[0]), "has no cameras"),
        (lambda path: path.with_name("other.csv").write_bytes(path.read_bytes()), "keep one file of cameras"),
        (lambda path: path.unlink(), "no photograph has an .xmp file beside it, and no .csv file holds cameras"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named(table, change, message):
    change(table)
    with pytest.raises(SceneError, match=message) as caught:
        load_scene(dataset_config(table.parent, roi="0 0 0 1", type="realitycapture"))
    assert "\n" not in str(caught.value)

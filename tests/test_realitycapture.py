"""What the XMP files of RealityCapture may not contain is named."""

import dataclasses

import pytest
from scene_writers import make_views, write_realitycapture
from synthetic_scene import dataset_config

from data.errors import SceneError
from data.readers.detect import recognise
from data.scenes.load import load_scene


@pytest.fixture
def folder(tmp_path):
    write_realitycapture(tmp_path, [dataclasses.replace(view, p=(0.0, 0.0)) for view in make_views()])
    return tmp_path


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

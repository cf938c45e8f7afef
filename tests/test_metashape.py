"""What Metashape's cameras.xml may not contain is named."""

import pytest
from scene_writers import make_views, write_metashape
from synthetic_scene import dataset_config

from data.errors import SceneError
from data.scenes.load import load_scene


@pytest.fixture
def folder(tmp_path):
    write_metashape(tmp_path, make_views())
    return tmp_path


def test_cameras_that_are_not_aligned_or_not_enabled_are_left_out(folder):
    path = folder / "cameras.xml"
    path.write_text(path.read_text().replace('label="view_1"', 'label="view_1" enabled="false"'))
    scene = load_scene(dataset_config(folder, roi="0 0 0 1"))
    assert scene.n_views == 5 and any("not aligned, and left out: not aligned" in note for note in scene.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<document", "<!DOCTYPE a [<!ENTITY b 'c'>]><document", "declares a document type"),
        ("</document>", "", "cannot be read as XML"),
        ("</chunk>", "</chunk><chunk/>", "has 2 chunks"),
        ("<f>", "<k4>0.1</k4><f>", "camera view_0.png: k4 of its frame calibration is not supported"),
        ("<f>", "<b2>0.1</b2><f>", "b2 of its frame calibration"),
        ('type="frame"', 'type="spherical"', "sensor type spherical is not supported"),
        ('class="adjusted"', 'class="other"', "no calibration"),
        ("<f>", "<f>x", "f is 'x.* must be a finite number"),
        ("<scale>2.5", "<scale>0", "scale is 0 and must be above 0"),
        ("<transform>", "<transform>7 ", "transform has 17 numbers and must have 16"),
        ('label="view_1"', 'label="../view_1"', "leads out of the scene folder|does not exist"),
        ('label="view_1"', 'label="view_9"', "label images/view_9 does not exist"),
        ('sensor_id="1"', 'sensor_id="77"', "its sensor_id names no sensor"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(folder, old, new, message):
    path = folder / "cameras.xml"
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with pytest.raises(SceneError, match=message) as caught:
        load_scene(dataset_config(folder, roi="0 0 0 1"))
    assert "cameras.xml" in str(caught.value) and "\n" not in str(caught.value)

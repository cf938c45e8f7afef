"""Camera files of Metashape on the bundled scene."""

import shutil

import numpy as np
import pytest
from foreign_files import camera, metashape, require_true, transforms
from synthetic_scene import NAMES, VIEWS, photographs, read

from data.errors import SceneError


def test_a_rig_of_metashape(tmp_path):
    posed = photographs(tmp_path, NAMES)
    offset = np.linalg.inv(posed[0].c2w) @ posed[1].c2w
    rotation, place = (" ".join(map(str, part.ravel())) for part in (offset[:3, :3], offset[:3, 3]))
    slave = f'<sensor id="1" master_id="0" type="frame">{{size}}{{given}}<rotation>{rotation}</rotation>'
    slave += f"<translation>{place}</translation></sensor>"
    cameras = camera(0, NAMES[0], posed[0].c2w) + camera(1, NAMES[1], sensor_id=1, master_id=0)
    cameras += "".join(camera(number, NAMES[number], posed[number].c2w) for number in range(2, VIEWS))
    metashape(tmp_path, posed, cameras, sensors=slave)
    require_true(read(tmp_path)[0], posed)
    metashape(tmp_path, posed, cameras.replace('id="0"', 'id="0" master_id="1"', 1), sensors=slave)
    with pytest.raises(SceneError, match="its master has a master itself"):
        read(tmp_path)


def test_components_of_metashape_without_a_common_frame(tmp_path):
    posed = photographs(tmp_path, NAMES)
    cameras = "".join(camera(n, NAMES[n], posed[n].c2w, component_id=int(n >= 7)) for n in range(VIEWS))
    metashape(tmp_path, posed, cameras, components='<component id="0"/><component id="1"/>')
    parsed, _ = read(tmp_path)
    require_true(parsed, posed[:7])
    assert any("no common frame; the largest, of 7 photographs, is used" in note for note in parsed.notes)


def test_calibrations_of_metashape(tmp_path):
    posed = photographs(tmp_path, NAMES)
    cameras = "".join(camera(n, NAMES[n], posed[n].c2w) for n in range(VIEWS))
    (fx, _, cx), (_, fy, cy), _ = posed[0].lens.intrinsics
    metashape(tmp_path, posed, cameras, f"<fx>{fx}</fx><fy>{fy}</fy><cx>{cx + 0.5}</cx><cy>{cy + 0.5}</cy>")
    require_true(read(tmp_path)[0], posed)
    metashape(tmp_path, posed, cameras, f"<f>{fx}</f><p1>0.001</p1><p3>5</p3><p4>-3</p4>")
    with pytest.raises(SceneError, match="p3 and p4 of its frame calibration is not supported"):
        read(tmp_path)


def test_equal_labels_of_metashape(tmp_path):
    posed = photographs(tmp_path, NAMES)
    cameras = "".join(camera(n, NAMES[min(n, 8)], posed[n].c2w) for n in range(VIEWS))
    metashape(tmp_path, posed, cameras)
    with pytest.raises(SceneError, match=r"several cameras have the label DJI_8 \(408\).png"):
        read(tmp_path)


@pytest.mark.parametrize("program", ["metashape", "nerfstudio"])
def test_a_missing_photograph_is_left_out(program, tmp_path):
    posed = photographs(tmp_path, NAMES)
    if program == "metashape":
        metashape(tmp_path, posed, "".join(camera(n, NAMES[n], posed[n].c2w) for n in range(VIEWS)))
    else:
        inside = [f"images/{name}" for name in NAMES]
        transforms(tmp_path, posed, inside, camera_model="PINHOLE", train_filenames=inside)
    (tmp_path / "images" / NAMES[3]).unlink()
    parsed, _ = read(tmp_path)
    require_true(parsed, [*posed[:3], *posed[4:]])
    assert any("1 of 10 photographs are missing and left out" in note for note in parsed.notes)
    (tmp_path / "images" / NAMES[4]).unlink()
    with pytest.raises(SceneError, match="2 of 10 photographs are missing, the first is .*DJI_3"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["{}.png", "{}.png.png", "{}_mask.PNG"])
def test_masks_beside_photographs_of_any_folder(name, tmp_path):
    posed = photographs(tmp_path, NAMES, "photos")
    metashape(tmp_path, posed, "".join(camera(n, NAMES[n][:-4], posed[n].c2w) for n in range(VIEWS)))
    (tmp_path / "masks").mkdir()
    for own, image in zip(NAMES, posed, strict=True):
        shutil.copy(image.mask_path, tmp_path / "masks" / name.format(own[:-4]))
    parsed, _ = read(tmp_path)
    require_true(parsed, posed)
    assert [image.mask_path.name for image in parsed.images] == [name.format(own[:-4]) for own in NAMES]

"""Photographs of a fisheye lens, such as those that are clipped onto phones, are prepared as those of other lenses."""

import json

import compare_cameras
import numpy as np
import pytest
from fisheye_photographs import write_fisheye
from preparations import request

from data.prepare import colmap_tasks
from data.prepare.pipeline import prepare
from data.readers.colmap_files import load_tables


@pytest.mark.slow
def test_a_very_wide_lens_is_recognised(tmp_path):
    poses, focal = write_fisheye(tmp_path / "photos", colmap_tasks.LEAST_FISHEYE, degrees=170)
    assert prepare(request(tmp_path), str)
    work = tmp_path / "scene" / "prepare"
    result = json.loads((work / "cameras.json").read_text())["result"]
    ((name, _, _, parameters),) = load_tables(None, str(work / "sparse" / result["folder"])).cameras.values()
    assert name == colmap_tasks.FISHEYE_MODEL and np.allclose(parameters[:2], focal, rtol=0.01)
    assert len(result["names"]) == len(poses) and result["error"] < 0.3
    degrees, shares = compare_cameras.compare(poses, compare_cameras.poses_of(tmp_path / "scene"))
    assert degrees.max() < 0.2 and shares.max() < 0.005

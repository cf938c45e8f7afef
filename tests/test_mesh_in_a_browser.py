"""A GLB in a headless browser, shown by the viewer that trimesh brings (three.js): neither black nor blank."""

import base64
import subprocess

import numpy as np
import pytest
import trimesh
from browsing import browser_path
from trimesh import resources, util

from data.io.images import read_image
from models.surface.formats import to_glb
from models.surface.mesh import About, Surface

SECONDS = 120
ABOUT = About("world", "those of the scene's cameras", 1, "exp")


# The viewer takes the file's first camera; ours has no camera, so the test sets one. The viewer
# shows linear colours; the test selects sRGB, as glTF viewers do.
THE_FILES_CAMERA = "camera=gltf.cameras[0];"
CAMERA = "camera=new THREE.PerspectiveCamera(45,4/3,0.01,100);camera.position.set(0,0,2.5);"
SHOWN_AS_SRGB = "renderer.outputEncoding=THREE.sRGBEncoding;"


def page(glb):
    """The viewer's page with a GLB in it."""
    archive = util.decompress(resources.get_bytes("templates/viewer.zip"), file_type="zip")
    text = archive["viewer.html.template"].read().decode("utf-8")
    assert "$B64GLTF" in text and text.count(THE_FILES_CAMERA) == 1
    return text.replace(THE_FILES_CAMERA, CAMERA + SHOWN_AS_SRGB).replace("$B64GLTF", base64.b64encode(glb).decode())


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["colours", "texture"])
def test_glb_is_shown_neither_black_nor_blank(kind, tmp_path):
    mesh = trimesh.creation.icosphere(4, 0.7)
    rgb = np.rint((mesh.vertices + 1.0) * 127.5).astype(np.uint8)
    uv = ((mesh.vertices[:, :2] + 1.0) / 2.0).astype(np.float32)
    picture = np.random.default_rng(0).integers(80, 255, (64, 64, 3)).astype(np.uint8)
    surface = Surface(mesh, None, rgb) if kind == "colours" else Surface(mesh, None, None, uv, picture)
    (tmp_path / "page.html").write_text(page(to_glb(surface, ABOUT)), encoding="utf-8")
    command = [browser_path(), "--headless", "--no-sandbox", "--use-gl=swiftshader", "--enable-unsafe-swiftshader"]
    command += ["--virtual-time-budget=20000", "--window-size=640,480", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--screenshot={tmp_path / 'shot.png'}", (tmp_path / "page.html").as_uri()]
    subprocess.run(command, check=True, timeout=SECONDS, capture_output=True)
    shot = read_image(tmp_path / "shot.png").astype(float)
    middle = shot[shot.shape[0] // 3 : -shot.shape[0] // 3, shot.shape[1] // 3 : -shot.shape[1] // 3]
    assert middle.std() > 5 and 20 < middle.mean() < 250
    if kind == "colours":  # of (0, 0, 0.7), as they were given
        assert np.abs(shot[240, 320, :3] - [127.5, 127.5, 216.75]).max() < 4
    else:
        assert middle[..., :3].min() > 70


def test_page_of_the_viewer_takes_a_glb():
    found = page(to_glb(Surface(trimesh.creation.icosphere(1)), ABOUT))
    assert "$B64GLTF" not in found and "three" in found.lower()

"""What other programs write, on the bundled scene: read as its own cameras say, or refused in one sentence."""

import json
import re

import cv2
import numpy as np
import pytest
import trimesh
from foreign_files import require_true, transforms
from synthetic_scene import NAMES, VIEWS, photographs, read

from data.errors import SceneError
from data.io.images import read_image, write_image
from data.prepare.inspection.checks import bad_geometry, findings
from models.mesh.mesh import About, Surface, read_mesh, write_surface
from models.mesh.output import offset_file
from models.results.report.reconstruction import health_json, warnings


def colmap_text(folder, names, posed, change=lambda lines: lines, in_model=None):
    """A text model without points, whose lines `change` may alter."""
    model = folder / "sparse" / "0"
    model.mkdir(parents=True)
    intrinsics = posed[0].lens.intrinsics
    height, width = read_image(posed[0].path).shape[:2]
    pinhole = f"{intrinsics[0, 0]} {intrinsics[1, 1]} {intrinsics[0, 2] + 0.5} {intrinsics[1, 2] + 0.5}"
    (model / "cameras.txt").write_text(f"# cameras\n1 PINHOLE {width} {height} {pinhole}\n")
    lines = ["# images"]
    for number, (name, image) in enumerate(zip(in_model or names, posed, strict=True), 1):
        w2c = np.linalg.inv(image.c2w)
        quaternion = trimesh.transformations.quaternion_from_matrix(w2c)
        numbers = " ".join(f"{value:.12g}" for value in (*quaternion, *w2c[:3, 3]))
        lines += [f"{number} {numbers} 1 {name}", ""]
    (model / "images.txt").write_bytes("\n".join([*change(lines), ""]).encode("gbk"))
    return model


@pytest.mark.parametrize(
    ("in_model", "change", "note"),
    [
        (NAMES, list, ""),
        (NAMES, lambda lines: [line for line in lines if line], ""),  # without the lines of matches
        ([rf"C:\photos\{name}" for name in NAMES], list, "another folder or letter case"),
        ([f"/home/x/{name.upper()}" for name in NAMES], list, "another folder or letter case"),
    ],
)
def test_text_models_of_colmap(in_model, change, note, tmp_path):
    posed = photographs(tmp_path, NAMES)
    colmap_text(tmp_path, NAMES, posed, change, in_model)
    parsed, _ = read(tmp_path)
    require_true(parsed, posed)
    assert parsed.points is None and note in " ".join(parsed.notes)


def test_a_tenth_of_the_photographs_may_be_missing(tmp_path):
    posed = photographs(tmp_path, NAMES)
    colmap_text(tmp_path, NAMES, posed)
    (tmp_path / "images" / NAMES[3]).unlink()
    parsed, _ = read(tmp_path)
    require_true(parsed, [*posed[:3], *posed[4:]])
    assert any(note.endswith(f"1 of 10 photographs are missing and left out: {NAMES[3]}") for note in parsed.notes)
    (tmp_path / "images" / NAMES[4]).unlink()
    with pytest.raises(SceneError, match="2 of 10 photographs are missing, the first is DJI_3"):
        read(tmp_path)


def test_reduced_photographs_alone(tmp_path):
    posed = photographs(tmp_path, NAMES, "images_3")
    for name in NAMES:
        write_image(tmp_path / "images_3" / name, read_image(tmp_path / "images_3" / name)[::3, ::3])
    colmap_text(tmp_path, NAMES, posed)
    parsed, scene = read(tmp_path)
    require_true(parsed, posed)
    height, width = scene.images[0].shape[:2]
    assert np.allclose(scene.intrinsics[0, :2, 0].max(), posed[0].lens.intrinsics[0, 0] * width / 200)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [re.sub(r"^3 \S+ \S+ \S+ \S+", "3 0 0 0 0.0", line) for line in lines], "DJI_2 .* is 0 0 0 0"),
        (lambda lines: [line.replace(".", ",") for line in lines], "images.txt, line 2: has decimal commas"),
        (lambda lines: [line.replace("DJI", "照片") for line in lines], "images.txt, line 2: is not UTF-8"),
        (lambda lines: [*lines, "1 2 three"], "is neither a pose with a name nor a line of matches"),
    ],
)
def test_text_models_that_cannot_be_read(change, words, tmp_path):
    colmap_text(tmp_path, NAMES, photographs(tmp_path, NAMES), change)
    with pytest.raises(SceneError, match=words):
        read(tmp_path)


@pytest.mark.parametrize("place", ["/home/x/bear/images", "../bear/images", r"..\..\images", r"C:\bear"])
def test_names_of_another_machine(place, tmp_path):
    posed = photographs(tmp_path, NAMES)
    transforms(tmp_path, posed, [f"{place}/{name}" for name in NAMES])
    parsed, _ = read(tmp_path)
    require_true(parsed, posed)
    assert any("10 names of another place" in note for note in parsed.notes)


def test_is_fisheye_beside_keys_of_nerfstudio(tmp_path):
    posed = photographs(tmp_path, NAMES)
    inside = [f"images/{name}" for name in NAMES]
    transforms(tmp_path, posed, inside, lambda name: {"colmap_im_id": 1}, is_fisheye=1, k1=0.05, k4=0.001)
    parsed, _ = read(tmp_path)
    assert all(image.lens.is_fisheye and image.lens.distortion == (0.05, 0.0, 0.0, 0.001) for image in parsed.images)
    transforms(tmp_path, posed, inside, is_fisheye=True, camera_model="OPENCV")
    with pytest.raises(SceneError, match="is_fisheye is true and camera_model OPENCV"):
        read(tmp_path)


@pytest.mark.parametrize("key", ["k5", "k6", "b1", "b2", "sx1", "p3", "skew_x"])
def test_keys_of_lenses_that_are_not_applied_are_named(key, tmp_path):
    posed = photographs(tmp_path, NAMES)
    transforms(tmp_path, posed, [f"images/{name}" for name in NAMES], **{key: 0})
    require_true(read(tmp_path)[0], posed)
    transforms(tmp_path, posed, [f"images/{name}" for name in NAMES], **{key: 0.01})
    with pytest.raises(SceneError, match=f"{key} of its lens cannot be applied"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["cameras.xml", "transforms.json", "sfm_data.json", "cameras.sfm", "images/a.xmp"])
def test_empty_files(name, tmp_path):
    photographs(tmp_path, ["a.png"])
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "cameras.csv").write_text("name,x,y,alt,heading,pitch,roll,f\n" if name.endswith("xmp") else "")
    with pytest.raises(SceneError, match=f"{name}: is empty"):
        read(tmp_path)


HALF = np.array([[99.5, 0, 99.5], [0, 99.5, 99.5], [0, 0, 1]])  # -1 to 1 for 200 pixels


@pytest.mark.parametrize("pixels", [np.eye(3), HALF, np.diag([200.0, 200.0, 1.0])])
@pytest.mark.parametrize("size", [3, 4])
def test_intrinsics_apart_from_poses(size, pixels, tmp_path):
    posed = photographs(tmp_path, NAMES, "image")
    apart = np.eye(size)
    apart[:3, :3] = np.linalg.inv(pixels) @ posed[0].lens.intrinsics
    arrays = {f"world_mat_{n}": np.linalg.inv(image.c2w) for n, image in enumerate(posed)}
    np.savez(tmp_path / "cameras_sphere.npz", **arrays)
    with pytest.raises(SceneError, match="world_mat_0 has no intrinsics, and there is no camera_mat_0"):
        read(tmp_path)
    np.savez(tmp_path / "cameras_sphere.npz", **arrays, **{f"camera_mat_{n}": apart for n in range(VIEWS)})
    parsed, scene = read(tmp_path, roi="4 -7 1.5 2.5")
    require_true(parsed, posed)
    assert parsed.scale_mat is None and np.allclose(scene.scene_to_world[:3, 3], [4, -7, 1.5])
    apart[0, 2] = 9.0
    np.savez(tmp_path / "cameras_sphere.npz", **arrays, **{f"camera_mat_{n}": apart for n in range(VIEWS)})
    if apart[0, 0] < 16:
        with pytest.raises(SceneError, match="is not in pixels, and its principal point"):
            read(tmp_path)


def test_an_opaque_alpha_channel_is_no_mask(tmp_path):
    posed = photographs(tmp_path, NAMES)
    for name in NAMES:
        pixels = cv2.imread(str(tmp_path / "images" / name))
        cv2.imwrite(str(tmp_path / "images" / name), cv2.cvtColor(pixels, cv2.COLOR_BGR2BGRA))
    transforms(tmp_path, posed, [f"images/{name}" for name in NAMES])
    assert read(tmp_path, masks_from_backdrop=False)[1].masks is None


@pytest.mark.parametrize("is_inverted", [False, True])
def test_inverted_masks_are_told(is_inverted, tmp_path):
    posed = photographs(tmp_path, NAMES)
    (tmp_path / "masks").mkdir()
    for name, image in zip(NAMES, posed, strict=True):
        mask = read_image(image.mask_path)[..., 0]
        write_image(tmp_path / "masks" / name, 255 - mask if is_inverted else mask)
    transforms(
        tmp_path,
        posed,
        [f"images/{name}" for name in NAMES],
        lambda name: {"mask_path": name.replace("images", "masks")},
    )
    scene = read(tmp_path)[1]
    told = [note for note in scene.notes if "the masks look inverted" in note]
    assert len(told) == is_inverted and list(scene.doubts) == told
    health = json.loads(health_json(scene, findings(scene)))
    assert warnings(health)[:1] == told or not is_inverted  # in result.md


def test_bad_geometry_is_what_inspect_calls_bad(tmp_path):
    posed = photographs(tmp_path, NAMES[:4])
    transforms(tmp_path, posed, [f"images/{name}" for name in NAMES[:4]])
    scene = read(tmp_path, roi="4 -7 1.5 2.5", masks_from_backdrop=False)[1]
    of_images = ("cameras", "sharpness", "exposure", "masks")
    bad = [one.check for one in findings(scene) if one.verdict == "bad" and one.check not in of_images]
    assert "views" in bad and [one.check for one in bad_geometry(scene)] == bad


def test_cameras_of_programs_that_are_not_read_are_named(tmp_path):
    photographs(tmp_path, NAMES)
    (tmp_path / "sfm_data.bin").write_text("{}")
    with pytest.raises(SceneError, match="has the cameras of OpenMVG .*openMVG_main_ConvertSfM_DataFormat writes"):
        read(tmp_path)


@pytest.mark.parametrize("suffix", [".ply", ".obj", ".glb", ".stl"])
def test_a_mesh_far_from_the_origin_keeps_its_shape(suffix, tmp_path):
    ball, path = trimesh.creation.icosphere(3), tmp_path / f"mesh{suffix}"
    far = trimesh.Trimesh(ball.vertices * 4.5 + [512400.3, 4650000.7, 315.7], ball.faces, process=False)
    surface = Surface(far, ball.vertex_normals.astype(np.float32))
    write_surface(surface, path, About("world", "m", "z", 1, "c"))
    found = read_mesh(path)
    assert np.abs(found.triangles - far.triangles).max() < 1e-5
    if suffix in (".glb", ".stl"):
        offset = json.loads((tmp_path / f"mesh{suffix}.json").read_text())["offset"]
        assert np.allclose(offset, [512400, 4650001, 316]) and f"mesh{suffix}.json" in str(offset_file(path))
    if suffix == ".stl":  # without its record it is not where its coordinates say
        (tmp_path / "mesh.stl.json").rename(tmp_path / "kept")
        with pytest.raises(SceneError, match=r"mesh\.stl\.json: cannot be read"):
            read_mesh(path)
        (tmp_path / "kept").rename(tmp_path / "mesh.stl.json")
    near = Surface(ball, ball.vertex_normals.astype(np.float32))
    write_surface(near, path, About("world", "m", "z", 1, "c"))  # the old offset is not applied
    assert np.abs(read_mesh(path).triangles - ball.triangles).max() < 1e-5

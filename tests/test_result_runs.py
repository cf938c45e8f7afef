"""Results through the command line: frames, formats, empty surfaces, chunks, published checkpoints."""

import json
import re
import shutil
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
import trimesh
from runs import GOLDEN, ROOT, SHORT, run, saved

from data.io.images import read_image, write_image
from data.scenes.readers.neus import FRAME_FILE
from models.checkpoints.published import read_torch_checkpoint, to_checkpoint
from models.mesh import details
from models.results import detailed as delivery
from models.results.metric_tables import DETAILS_FILE, NCC_WITHOUT, WITH_DETAILS, WITHOUT_DETAILS
from models.results.photo_consistency import ConsistencyMetrics

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_figures")]

WORLD_SCALE, WORLD_CENTRE = 2.5, (4.0, -7.0, 1.5)  # scale_mat of the bundled scene (data/demo/make_demo.py)
# The networks of the published checkpoints in tests/golden.
SDF = ("d_out=65", "d_hidden=64", "n_layers=8", "skip_in=[4]", "multires=6")
COLOR = ("d_feature=64", "d_hidden=64", "n_layers=4", "multires_view=4")
NERF = ("D=8", "W=64", "skips=[4]", "multires=10", "multires_view=4")
OFFICIAL = (*(f"model.sdf_network.{key}" for key in SDF), *(f"model.rendering_network.{key}" for key in COLOR))
BACKGROUND = ("model.neus_renderer.n_outside=8",)
OFFICIAL_BACKGROUND = (*BACKGROUND, *(f"model.nerf.{key}" for key in NERF), "train.mask_weight=0")
# Wide enough for the geometric initialisation to be a sphere.
WIDE = ("model.sdf_network.d_hidden=128", "model.sdf_network.skip_in=[]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two steps: the networks are still close to the sphere of radius 0.5 they start as."""
    folder = tmp_path_factory.mktemp("results")
    assert run(folder, settings=("train.end_iter=2", "train.warm_up_end=1", *WIDE)) == 0
    return folder


def test_the_mesh_is_closed_and_in_world_coordinates(trained, capsys):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*.ply")}
    assert run(trained, "--mode", "validate_mesh", "--resolution", "16", "--mcube_threshold", "50", settings=WIDE) == 2
    assert "surface" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*.ply")} == before
    assert run(trained, "--mode", "validate_mesh", "--resolution", "48", settings=WIDE) == 0
    mesh, told = trimesh.load(trained / "meshes/00000002.ply"), capsys.readouterr().out
    for stage in ("extracted with 48 grid points per side", "closed cavities without a camera: 0", "0, 1 kept"):
        assert re.search(rf"^ *{len(mesh.faces)} triangles, [+]\d+: .*{stage}$", told, re.MULTILINE)
    radii = np.linalg.norm(mesh.vertices - WORLD_CENTRE, axis=1) / WORLD_SCALE
    assert mesh.is_watertight and mesh.volume > 0
    # Roughly round is enough: in the working frame, or off by the scale or the centre, it would be far outside.
    assert radii.min() > 0.2 and radii.max() < 1.2


@pytest.fixture
def held_out(monkeypatch):
    """Sets the correlation of test photographs across a mesh, and across that with details, which is always tried."""
    monkeypatch.setattr(details, "WORTH", -1.0)

    def correlate(*scores):
        scored = Mock(side_effect=[ConsistencyMetrics(score, 9) for score in scores])
        monkeypatch.setattr(delivery, "photo_consistency", scored)

    return correlate


def test_details_leave_pictures_and_figures_of_the_mesh_without_them(trained, held_out, capsys):
    names = (WITHOUT_DETAILS, WITH_DETAILS, DETAILS_FILE)
    for scores, is_better in (((0.6, 0.59), False), ((0.5, 0.6), True)):
        held_out(*scores)
        assert run(trained, "--mode", "validate_mesh", "--resolution", "32", "--details", settings=WIDE) == 0
        told = capsys.readouterr().out
        assert re.search(r"details: \d+ vertices as \d+ photographs of full size show them", told)
        assert f"by {scores[1]:.3f}, without details {scores[0]:.3f}" in told
        assert ("the mesh stays without" in told) != is_better
        assert all((trained / "report" / name).is_file() == is_better for name in names)
    pictures = [read_image(trained / "report" / name) for name in names[:2]]
    assert pictures[0].shape == pictures[1].shape and (pictures[0] != pictures[1]).any()
    assert json.loads((trained / "report" / DETAILS_FILE).read_text()) == {NCC_WITHOUT: 0.5}


def test_details_of_an_object_without_its_ground_end_watertight(trained, held_out, capsys):
    held_out(0.5, 0.6)
    output = trained / "printed.ply"
    wanted = ("--details", "--object", "--watertight", "--output", str(output))
    assert run(trained, "--mode", "validate_mesh", "--resolution", "32", *wanted, settings=WIDE) == 0
    assert "photographs of full size show them" in capsys.readouterr().out
    assert trimesh.load(output).is_watertight


def test_a_mesh_of_another_program_gets_details_and_a_texture(tmp_path, held_out, capsys):
    held_out(0.5, 0.6)
    ball = trimesh.creation.icosphere(3, 0.5 * WORLD_SCALE)
    ball.apply_translation(WORLD_CENTRE)
    ball.export(tmp_path / "other.ply")
    given, output = ("--mesh", str(tmp_path / "other.ply"), "--details"), ("--output", str(tmp_path / "other.glb"))
    wanted = ("--colour", "texture", "--texture_size", "256", "--decimate", "500")
    assert run(tmp_path / "exp", "--mode", "validate_mesh", *given, *wanted, *output) == 0, capsys.readouterr().err
    assert "photographs of full size show them" in capsys.readouterr().out
    found = trimesh.load(tmp_path / "other.glb", force="mesh")
    assert 400 < len(found.faces) <= 500 and found.visual.kind == "texture"


def test_a_picture_holds_rendering_photograph_and_normals(trained):
    assert run(trained, "--mode", "validate_image", "--image", "2", "--resolution_level", "5", settings=WIDE) == 0
    picture = read_image(trained / "validations_fine/00000002_0_2.png")
    grid = np.rint(np.linspace(0, 199, 40)).astype(int)
    nearest = read_image(ROOT / "data/demo/image/002.png")[np.ix_(grid, grid)].astype(int)
    assert picture.shape == (3 * 40, 40, 3) and np.median(np.abs(picture[40:80].astype(int) - nearest)) <= 4
    assert read_image(trained / "normals/00000002_0_2.png").shape == (40, 40, 3)
    # Through the middle of the picture: a camera at distance 3 from a surface of radius about 0.5.
    assert 2.2 < np.load(trained / "distances/00000002_0_2.npy")[20, 20] < 2.8


def test_the_chunk_never_changes_a_rendering(tmp_path):
    assert run(tmp_path, settings=("train.end_iter=1", "train.warm_up_end=0", *BACKGROUND)) == 0
    pictures = set()
    for chunk in (1600, 100, 7):
        settings = (f"train.render_chunk={chunk}", *BACKGROUND)
        assert run(tmp_path, "--mode", "validate_image", "--resolution_level", "5", settings=settings) == 0
        files = ("validations_fine/00000001_0_0.png", "distances/00000001_0_0.npy")
        pictures.add(tuple((tmp_path / name).read_bytes() for name in files))
    assert len(pictures) == 1


def test_an_interpolation_is_a_video_there_and_back(trained):
    assert run(trained, "--mode", "interpolate_0_1", "--resolution_level", "4", settings=WIDE) == 0
    video = cv2.VideoCapture(str(trained / "render/00000002_0_1.mp4"))
    frames = [video.read()[1].astype(int) for _ in range(120)]
    assert frames[0].shape == (50, 50, 3) and not video.read()[0]
    assert np.abs(frames[0] - frames[119]).mean() < 3 < np.abs(frames[0] - frames[60]).mean()


def before_a_wall(folder):
    """The held-out photographs of the bundled scene as if taken in a room, with their masks, and called otherwise."""
    shutil.copytree(ROOT / "data/demo/test", folder)
    called = {path.name: f"IMG_{path.stem}.jpg" for path in (folder / "image").iterdir()}
    (folder / FRAME_FILE).write_text(json.dumps({"photographs": called}))
    for name in called:
        picture, inside = read_image(folder / "image" / name), read_image(folder / "mask" / name)[..., :1] > 127
        wall = np.random.default_rng(0).integers(90, 200, picture.shape, dtype=np.uint8)
        write_image(folder / "image" / name, np.where(inside, picture, wall))
    return folder


def test_photographs_with_a_background_are_judged_inside_their_masks(trained, tmp_path, capsys):
    room = before_a_wall(tmp_path / "room")
    settings = (*WIDE, f"dataset.test_dir={room}")
    assert run(trained, "--mode", "evaluate", "--resolution", "48", settings=settings) == 0
    told, figures = capsys.readouterr().out, json.loads((trained / "report/metrics.json").read_text())
    assert figures["counts_first"] == "psnr_mask" and re.search(r"primary metrics +inside the mask\n", told)
    assert 5 < figures["psnr"] < figures["psnr_mask"] - 3 and figures["ssim"] < figures["ssim_mask"]
    assert 0.01 < figures["chamfer"] < 0.5 and figures["seconds"] > 0
    for name in ("psnr_mask", "iou"):
        assert figures[name] == pytest.approx(np.mean([view[name] for view in figures["views"]])), name
    greyed = read_image(trained / "report/report.png")[:, 200:400][read_image(room / "mask/000.png")[..., 0] < 127]
    assert (np.ptp(greyed.astype(int), axis=1) == 0).all()
    named = [view["view"] for view in figures["views"]]
    assert named == sorted(f"IMG_{path.stem}.jpg" for path in (room / "image").iterdir())


@pytest.mark.parametrize(("name", "extra"), [("wmask", ()), ("womask", OFFICIAL_BACKGROUND)])
def test_a_published_checkpoint_gives_results_and_goes_on_training(name, extra, tmp_path):
    source, settings = GOLDEN / f"official_{name}_000040.pth", (*OFFICIAL, *extra, "dataset.downscale=8")

    def of_it(*flags, settings=settings):
        assert run(tmp_path, "--checkpoint", str(source), *flags, settings=settings) == 0

    of_it("--mode", "validate_mesh", "--resolution", "24")
    of_it("--mode", "evaluate", "--resolution", "24", settings=(*settings, "dataset.test_dir="))
    assert (tmp_path / "meshes/00000040.ply").is_file()
    found = json.loads((tmp_path / "report/metrics.json").read_text())
    assert found["chamfer"] > 0 and found["step"] == 40 and found["conf"]["model.sdf_network.d_hidden"] == 64
    of_it(settings=("train.end_iter=42", "train.warm_up_end=1", *SHORT[2:], *settings))
    after, before = saved(tmp_path, 42), to_checkpoint(read_torch_checkpoint(source))
    assert after.adam_steps == before.adam_steps + 2
    weight = after.tensors["sdf_network_fine"]["lin3.weight_v"] - before.tensors["sdf_network_fine"]["lin3.weight_v"]
    # Two Adam steps that go on from saved moments move a weight by at most about two learning rates.
    assert 0 < np.abs(weight).max() < 4e-3


def test_another_region_is_refused(trained, capsys):
    assert run(trained, "--mode", "validate_image", "--roi", "4 -7 1.5 3", settings=WIDE) == 2
    message = capsys.readouterr().err
    assert "another region of interest" in message and '--roi "4 -7 1.5 2.5"' in message
    assert run(trained, "--mode", "validate_image", "--roi", "4 -7 1.5 2.5", settings=WIDE) == 0

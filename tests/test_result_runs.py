"""Results through the command line: frames, formats, empty surfaces, chunks, published checkpoints."""

import json
import re
import shutil

import cv2
import numpy as np
import pytest
import trimesh
from runs import GOLDEN, ROOT, SHORT, run, saved

from data.io.images import read_image, write_image
from data.readers.neus import FRAME_FILE
from models.checkpoints.published import read_torch_checkpoint, to_checkpoint

pytestmark = pytest.mark.slow

WORLD_SCALE, WORLD_CENTRE = 2.5, (4.0, -7.0, 1.5)  # scale_mat of the bundled scene (data/demo/make_demo.py)
# The networks of the published checkpoints in tests/golden.
OFFICIAL = (
    "model.sdf_network.d_out=65",
    "model.sdf_network.d_hidden=64",
    "model.sdf_network.n_layers=8",
    "model.sdf_network.skip_in=[4]",
    "model.sdf_network.multires=6",
    "model.rendering_network.d_feature=64",
    "model.rendering_network.d_hidden=64",
    "model.rendering_network.n_layers=4",
    "model.rendering_network.multires_view=4",
)
OFFICIAL_BACKGROUND = (
    "model.neus_renderer.n_outside=8",
    "model.nerf.D=8",
    "model.nerf.W=64",
    "model.nerf.skips=[4]",
    "model.nerf.multires=10",
    "model.nerf.multires_view=4",
    "train.mask_weight=0",
)


# Wide enough for the geometric initialisation to be a sphere.
WIDE = ("model.sdf_network.d_hidden=128", "model.sdf_network.skip_in=[]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two steps: the networks are still close to the sphere of radius 0.5 they start as."""
    folder = tmp_path_factory.mktemp("results")
    assert run(folder, settings=("train.end_iter=2", "train.warm_up_end=1", *WIDE)) == 0
    return folder


def test_the_mesh_is_closed_and_in_world_coordinates(trained):
    assert run(trained, "--mode", "validate_mesh", "--resolution", "48", settings=WIDE) == 0
    mesh = trimesh.load(trained / "meshes/00000002.ply")
    radii = np.linalg.norm(mesh.vertices - WORLD_CENTRE, axis=1) / WORLD_SCALE
    assert mesh.is_watertight and mesh.volume > 0
    # Roughly round is enough: in the working frame, or off by the scale or the centre, it would be far outside.
    assert radii.min() > 0.2 and radii.max() < 1.2


def test_a_threshold_beyond_the_sdf_is_an_empty_surface_exit_2_and_no_file(trained, capsys):
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*.ply")}
    assert run(trained, "--mode", "validate_mesh", "--resolution", "16", "--mcube_threshold", "50", settings=WIDE) == 2
    assert "surface" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*.ply")} == before


def test_a_picture_holds_rendering_photograph_and_normals(trained):
    assert run(trained, "--mode", "validate_image", "--image", "2", "--resolution_level", "5", settings=WIDE) == 0
    picture = read_image(trained / "validations_fine/00000002_0_2.png")
    photograph = read_image(ROOT / "data/demo/image/002.png")
    assert picture.shape == (3 * 40, 40, 3)
    grid = np.rint(np.linspace(0, 199, 40)).astype(int)
    nearest = photograph[np.ix_(grid, grid)].astype(int)
    assert np.median(np.abs(picture[40:80].astype(int) - nearest)) <= 4
    assert read_image(trained / "normals/00000002_0_2.png").shape == (40, 40, 3)
    distance = np.load(trained / "distances/00000002_0_2.npy")
    # Through the middle of the picture: a camera at distance 3 from a surface of radius about 0.5.
    assert 2.2 < distance[20, 20] < 2.8


@pytest.mark.parametrize("background", [(), OFFICIAL_BACKGROUND[:1]], ids=["black", "background"])
def test_the_chunk_never_changes_a_rendering(trained, tmp_path, background):
    assert run(tmp_path, settings=("train.end_iter=1", "train.warm_up_end=0", *background)) == 0
    pictures = []
    for chunk in (1600, 100, 7):
        settings = (f"train.render_chunk={chunk}", *background)
        assert run(tmp_path, "--mode", "validate_image", "--resolution_level", "5", settings=settings) == 0
        files = ("validations_fine/00000001_0_0.png", "distances/00000001_0_0.npy")
        pictures.append([(tmp_path / name).read_bytes() for name in files])
    assert pictures[0] == pictures[1] == pictures[2]


def test_an_interpolation_is_a_video_there_and_back(trained):
    assert run(trained, "--mode", "interpolate_0_1", "--resolution_level", "4", settings=WIDE) == 0
    video = cv2.VideoCapture(str(trained / "render/00000002_0_1.mp4"))
    assert video.get(cv2.CAP_PROP_FRAME_COUNT) == 120 and video.get(cv2.CAP_PROP_FRAME_WIDTH) == 50
    frames = [video.read()[1] for _ in range(120)]
    assert np.abs(frames[0].astype(int) - frames[119]).mean() < 3
    assert np.abs(frames[0].astype(int) - frames[60]).mean() > 3


def test_an_interpolation_is_as_large_as_the_photographs(trained, monkeypatch):
    monkeypatch.setattr("models.results.interpolation.VIDEO_FRAMES", 2)
    assert run(trained, "--mode", "interpolate_1_2", settings=WIDE) == 0
    video = cv2.VideoCapture(str(trained / "render/00000002_1_2.mp4"))
    assert video.get(cv2.CAP_PROP_FRAME_WIDTH) == video.get(cv2.CAP_PROP_FRAME_HEIGHT) == 200


def test_an_evaluation_gives_a_picture_and_three_figures(trained, capsys):
    assert run(trained, "--mode", "evaluate", "--resolution", "48", settings=WIDE) == 0
    told = capsys.readouterr().out
    assert "PSNR, whole image" in told and "Chamfer distance" in told and "training time" in told
    figures = json.loads((trained / "report/metrics.json").read_text())
    assert 5 < figures["psnr"] < 40 and 0.01 < figures["chamfer"] < 0.5 and figures["seconds"] > 0
    assert read_image(trained / "report/report.png").shape == (200, 800, 3)
    # Before the rendering's own black, the whole image counts first.
    assert figures["counts_first"] == "psnr" and re.search(r"primary metrics +whole image\n", told)


def before_a_wall(folder):
    """The held-out photographs of the bundled scene as if taken in a room, with their masks, and called otherwise."""
    shutil.copytree(ROOT / "data/demo/test", folder)
    called = {path.name: f"IMG_{path.stem}.jpg" for path in (folder / "image").iterdir()}
    (folder / FRAME_FILE).write_text(json.dumps({"photographs": called}))
    for mask, photograph in zip(sorted((folder / "mask").iterdir()), sorted((folder / "image").iterdir()), strict=True):
        picture, inside = read_image(photograph), read_image(mask)[..., 0] > 127
        wall = np.random.default_rng(0).integers(90, 200, picture.shape, dtype=np.uint8)
        write_image(photograph, np.where(inside[..., None], picture, wall))
    return folder


def test_photographs_with_a_background_are_judged_inside_their_masks_first(trained, tmp_path, capsys):
    plain, rendered = None, None
    for test_dir in (ROOT / "data/demo/test", before_a_wall(tmp_path / "room")):
        settings = (*WIDE, f"dataset.test_dir={test_dir}")
        assert run(trained, "--mode", "evaluate", "--resolution", "24", settings=settings) == 0
        told, figures = capsys.readouterr().out, json.loads((trained / "report/metrics.json").read_text())
        picture = read_image(trained / "report/report.png")
        plain, rendered = plain or figures, picture[:, :200] if rendered is None else rendered
    for name in ("psnr_mask", "ssim_mask", "iou"):  # what is off the mask has no part in them
        assert figures[name] == pytest.approx(plain[name], rel=1e-6), name
    assert figures["psnr"] < plain["psnr"] - 3 and figures["ssim"] < plain["ssim"]
    assert figures["counts_first"] == "psnr_mask" and re.search(r"primary metrics +inside the mask\n", told)
    np.testing.assert_array_equal(picture[:, :200], rendered)  # nor does a mask decide what is rendered
    greyed = picture[:, 200:400][read_image(tmp_path / "room/mask/000.png")[..., 0] < 127]
    assert (np.ptp(greyed.astype(int), axis=1) == 0).all()
    named = [view["view"] for view in figures["views"]]
    assert named == sorted(f"IMG_{path.stem}.jpg" for path in (tmp_path / "room/image").iterdir())
    for name in ("psnr", "ssim", "psnr_mask", "ssim_mask", "iou"):
        assert figures[name] == pytest.approx(np.mean([view[name] for view in figures["views"]])), name
    assert (trained / "logs/train.log").read_text().count("held-out view ") >= 2 * len(figures["views"])


@pytest.mark.parametrize(("name", "extra"), [("wmask", ()), ("womask", OFFICIAL_BACKGROUND)])
def test_a_published_checkpoint_gives_a_mesh_a_picture_and_goes_on_training(name, extra, tmp_path):
    source, settings = str(GOLDEN / f"official_{name}_000040.pth"), (*OFFICIAL, *extra)
    assert (
        run(tmp_path, "--mode", "validate_mesh", "--resolution", "24", "--checkpoint", source, settings=settings) == 0
    )
    assert (tmp_path / "meshes/00000040.ply").is_file()
    picture = ("--mode", "validate_image", "--resolution_level", "10", "--checkpoint", source)
    assert run(tmp_path, *picture, settings=settings) == 0
    figures = ("--mode", "evaluate", "--resolution", "24", "--checkpoint", source)
    assert run(tmp_path, *figures, settings=(*settings, "dataset.test_dir=")) == 0
    found = json.loads((tmp_path / "report/metrics.json").read_text())
    assert found["chamfer"] > 0 and found["step"] == 40 and found["conf"]["model.sdf_network.d_hidden"] == 64
    end = ("train.end_iter=42", "train.warm_up_end=1", *SHORT[2:], *settings)
    assert run(tmp_path, "--checkpoint", source, settings=end) == 0
    after, before = saved(tmp_path, 42), to_checkpoint(read_torch_checkpoint(GOLDEN / f"official_{name}_000040.pth"))
    assert after.adam_steps == before.adam_steps + 2
    weight = after.tensors["sdf_network_fine"]["lin3.weight_v"] - before.tensors["sdf_network_fine"]["lin3.weight_v"]
    # Two Adam steps that go on from saved moments move a weight by at most about two learning rates.
    assert 0 < np.abs(weight).max() < 4e-3


@pytest.mark.parametrize(("name", "extra"), [("wmask", ()), ("womask", OFFICIAL_BACKGROUND)])
def test_a_published_checkpoint_gives_the_published_distances(name, extra):
    from models.fields.conf import SdfConfig
    from models.fields.sdf import SDFNetwork
    from models.fields.state import import_state
    from models.machine.backend import jt

    del extra
    checkpoint = to_checkpoint(read_torch_checkpoint(GOLDEN / f"official_{name}_000040.pth"))
    network = SDFNetwork(SdfConfig(d_in=3, d_out=65, d_hidden=64, n_layers=8, multires=6), np.random.default_rng(0))
    import_state(network, checkpoint.tensors["sdf_network_fine"])
    with np.load(GOLDEN / f"official_{name}_000040_probe.npz") as probe:
        sdf = network.at_weights().distance(jt.array(probe["points"])).numpy()
        assert np.abs(sdf.ravel() - probe["sdf"].ravel()).max() < 2e-5


def test_a_published_checkpoint_of_other_networks_is_refused_by_name(tmp_path, capsys):
    source = str(GOLDEN / "official_wmask_000040.pth")
    assert run(tmp_path, "--mode", "validate_mesh", "--checkpoint", source) == 2
    error = capsys.readouterr().err
    assert "sdf_network_fine" in error and error.count("\n") == 1


def test_another_region_than_that_of_the_training_is_refused_with_the_right_one(trained, capsys):
    assert run(trained, "--mode", "validate_image", "--roi", "4 -7 1.5 3", settings=WIDE) == 2
    message = capsys.readouterr().err
    assert "another region of interest" in message and '--roi "4 -7 1.5 2.5"' in message
    assert run(trained, "--mode", "validate_image", "--roi", "4 -7 1.5 2.5", settings=WIDE) == 0

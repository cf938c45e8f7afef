"""A method that is not part of models/, a coloured ball of five parameters, registered here; whole runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import trimesh
from runs import SHORT, contents, saved
from toys import PixelModel, ToyBlock, photograph, registered, run_conf, write_conf
from trainings import stopped_after

from data.io.images import read_image
from models.config.blocks import TrainConfig
from models.config.strict import limits
from models.estimators.pixels import upload
from models.machine.backend import jt
from models.methods.protocol import LevelSet
from models.methods.registry import Method
from models.ops.volrend import over_background
from models.rendering.losses import mask_term, masked_psnr, squared_term
from models.structs import Objective, RayView, Var

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class BallBlock:
    """The ball to start from, in the working frame."""

    radius: float = limits(0.3, above=0)
    sharpness: float = 2.0
    breath: float = limits(0.02, at_least=0)


@dataclass(frozen=True)
class BallConfig(ToyBlock):
    """The block `model`: type = ball, ball { ... }."""

    ball: BallBlock
    type: str = "ball"

    @property
    def parameters(self) -> int:
        return 5


class Ball(jt.nn.Module):
    """Radius, sharpness of the rim, colour."""

    def __init__(self, block: BallBlock, generator: np.random.Generator) -> None:
        super().__init__()
        self.radius = jt.array(np.float32([block.radius]))
        self.sharpness = jt.array(np.float32([block.sharpness]))
        self.color = jt.array(generator.normal(size=3).astype(np.float32))


@dataclass(frozen=True)
class Seen:
    """What rays show of the ball."""

    rgb: Var  # [R, 3]
    opacity: Var  # [R, 1]
    target: Var  # [R, 3]
    mask: Var  # [R, 1]


class BallModel(PixelModel):
    """Opaque where a ray passes the centre within the radius, which varies a little in training."""

    def __init__(self, block: BallBlock, train: TrainConfig, generator: np.random.Generator) -> None:
        self.block, self.train = block, train
        self.ball = Ball(block, generator)

    @property
    def networks(self):
        return {"ball": self.ball}

    @property
    def level_set(self):
        return LevelSet(self._outward, 0.0, "the distance to the ball")

    def sharpness(self):
        return None

    def draw_noise(self, entries, generator):
        return {"breath": generator.random((entries, 1), dtype=np.float32)} if self.block.breath > 0 else None

    def precompute(self, batch, noise, moment):
        return None

    def objective(self, batch, noise, moment, precomputed=None):
        rgb, opacity = self._render(batch.rays, noise, moment)
        seen = Seen(rgb, opacity, *photograph(batch, self.train))
        terms = {
            "color": squared_term(seen.rgb, seen.target, seen.mask),
            "mask": mask_term(seen.opacity, seen.mask, self.train.mask_weight),
        }
        return Objective(terms, seen)

    def scalars(self, output: Seen, losses: Mapping[str, Var]):
        psnr = masked_psnr(output.rgb, output.target, output.mask)
        return {"Loss/loss": losses["total"], "Statistics/psnr": psnr, "Statistics/radius": self.ball.radius}

    def progress_text(self, scalars):
        return f"radius {scalars['Statistics/radius']:.3f}"

    def view(self, rays, moment):
        with jt.no_grad():
            rgb, opacity = (value.numpy() for value in self._render(rays, None, moment))
        near = -(rays.origins * rays.directions).sum(axis=1, keepdims=True) - self.ball.radius.numpy()
        normal = (rays.origins + rays.directions * near).astype(np.float32)
        return RayView(rgb, normal * opacity, near.astype(np.float32), opacity)

    def view_fully(self, rays, moment):
        return self.view(rays, moment)

    def _render(self, rays, noise, moment):
        placed = upload(rays)
        along = (placed.origins * placed.directions).sum(dim=1, keepdims=True)
        passed = (placed.origins.sqr().sum(dim=1, keepdims=True) - along.sqr()).stop_grad()
        radius = self.ball.radius
        if noise is not None:
            radius = radius + (jt.array(noise["breath"]) - 0.5) * self.block.breath
        opacity = ((radius.sqr() - passed) * (self.ball.sharpness + 2.0).exp()).sigmoid()
        rgb = opacity * self.ball.color.sigmoid().reshape((1, 3))
        return over_background(rgb, opacity, moment.background_rgb), opacity

    def _outward(self, points):
        return np.linalg.norm(points, axis=1, keepdims=True) - self.ball.radius.numpy()


def build(conf: BallConfig, train: TrainConfig, generator: np.random.Generator) -> BallModel:
    """The model."""
    return BallModel(conf.ball, train, generator)


@pytest.fixture(scope="module", autouse=True)
def ball_kind():
    """Everything in this file happens with the kind registered."""
    with registered("ball", Method(BallConfig, build)):
        yield


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    """A scene and a conf."""
    return write_conf(tmp_path_factory.mktemp("ball"), "model { type = ball, ball { radius = 0.35 } }")


@pytest.fixture(scope="module")
def trained(conf, tmp_path_factory):
    """Six steps with a checkpoint after three, a picture and a mesh at the end."""
    folder = tmp_path_factory.mktemp("trained")
    assert run_conf(conf, folder, settings=(*SHORT[:3], "train.val_freq=6", "train.val_mesh_freq=6")) == 0
    return folder


def test_it_trains_and_writes_what_every_kind_writes(trained):
    written = {str(path.relative_to(trained)) for path in trained.rglob("*.*") if path.is_file()}
    assert written >= {"validations_fine/00000006_0_0.png", "meshes/00000006.ply", "recording/config.conf"}
    first, last = saved(trained, 3), saved(trained, 6)
    assert list(last.tensors) == ["ball"] and sum(array.size for array in last.tensors["ball"].values()) == 5
    assert all(np.any(first.tensors["ball"][name] != last.tensors["ball"][name]) for name in last.tensors["ball"])
    assert " radius 0.3" in (trained / "logs/train.log").read_text()


def test_it_resumes_bit_for_bit(conf, trained, tmp_path):
    folder = stopped_after(3, trained, tmp_path / "resumed")
    assert run_conf(conf, folder, "--is_continue") == 0
    assert contents(saved(folder, 6)) == contents(saved(trained, 6))


def test_its_picture_shows_the_photographs_size_and_its_mesh_the_ball(conf, trained):
    assert run_conf(conf, trained, "--mode", "validate_image", "--image", "1") == 0
    picture = read_image(trained / "validations_fine/00000006_0_1.png")
    assert picture.shape == (3 * 12, 16, 3) and picture[:12].any()
    assert run_conf(conf, trained, "--mode", "validate_mesh", "--resolution", "24") == 0
    mesh = trimesh.load(trained / "meshes/00000006.ply", process=False)
    radius = np.linalg.norm(mesh.vertices - [0.3, -0.2, 4.0], axis=1) / 2.5  # of write_scene's frame
    assert np.allclose(radius, saved(trained, 6).tensors["ball"]["radius"], atol=0.01)


WRONG = {
    "model.ball.radiuss=1": ("model.ball.radiuss", "did you mean model.ball.radius?"),
    "model.ball.radius=0": ("model.ball.radius = 0", "greater than 0"),
    "model.type=bal": ("model.type = 'bal'", "ball"),
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_wrong_key_or_value_is_one_sentence(setting, conf, tmp_path, capsys):
    assert run_conf(conf, tmp_path / "none", settings=(setting,)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(words in error for words in WRONG[setting])
    assert not (tmp_path / "none").exists()


# a conf needs the blocks of its own kind alone


def test_a_radiance_field_needs_no_block_of_a_surface(tmp_path):
    nerf = "type = nerf, nerf { D = 2, W = 16, skips = [], use_viewdirs = true }"
    path = write_conf(tmp_path, f"model {{ {nerf}, nerf_renderer {{ n_samples = 4, n_importance = 4 }} }}")
    assert run_conf(path, tmp_path / "exp", settings=("train.end_iter=1", "train.warm_up_end=0", *SHORT[3:])) == 0
    assert list(saved(tmp_path / "exp", 1).tensors) == ["nerf_coarse", "nerf_fine"]

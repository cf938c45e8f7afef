"""A method that is not part of models/, a coloured ball of five parameters, registered here; whole runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import trimesh
from runs import SHORT, contents, saved
from trainings import (
    PixelModel,
    ToyBlock,
    assert_every_parameter_moves,
    photograph,
    registered,
    run_conf,
    stopped_after,
    write_conf,
)

from data.io.images import read_image
from models.config.blocks import TrainConfig
from models.config.strict import limits
from models.estimators.base import upload
from models.machine.backend import jt
from models.methods.protocol import LevelSet
from models.methods.registry import Method
from models.ops.volrend import over_background
from models.plan import TrainingPlan
from models.rendering.losses import mask_term, masked_psnr, squared_term
from models.structs import Objective, RayView

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class BallBlock:
    """The ball to start from, in the working frame."""

    radius: float = limits(0.3, above=0)


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
        self.sharpness = jt.array(np.float32([4.0]))
        self.color = jt.array(generator.normal(size=3).astype(np.float32))


class BallModel(PixelModel):
    """Opaque where a ray passes the centre within the radius, which varies a little in training."""

    def __init__(
        self, conf: BallConfig, train: TrainConfig, generator: np.random.Generator, plan: TrainingPlan
    ) -> None:
        self.train, self.plan = train, plan
        self.ball = Ball(conf.ball, generator)

    @property
    def networks(self):
        return {"ball": self.ball}

    @property
    def level_set(self):
        def outward(points):
            return np.linalg.norm(points, axis=1, keepdims=True) - self.ball.radius.numpy()

        return LevelSet(outward, 0.0, "the distance to the ball")

    def draw_noise(self, entries, generator):
        return {"breath": generator.random((entries, 1), dtype=np.float32)}

    def objective(self, batch, noise, step, precomputed=None):
        rgb, opacity = self._render(batch.rays, noise)
        target, mask = photograph(batch, self.train)
        terms = {"color": squared_term(rgb, target, mask), "mask": replace(mask_term(opacity, mask), weight=0.1)}
        return Objective(terms, {"rgb": rgb, "target": target, "mask": mask})

    def scalars(self, output, losses):
        psnr = masked_psnr(**output)
        return {"Loss/loss": losses["total"], "Statistics/psnr": psnr, "Statistics/radius": self.ball.radius}

    def progress_text(self, scalars):
        return f"radius {scalars['Statistics/radius']:.3f}"

    def view(self, rays, step):
        with jt.no_grad():
            rgb, opacity = (value.numpy() for value in self._render(rays, None))
        near = -(rays.origins * rays.directions).sum(axis=1, keepdims=True) - self.ball.radius.numpy()
        normal = (rays.origins + rays.directions * near).astype(np.float32)
        return RayView(rgb, normal * opacity, near.astype(np.float32), opacity)

    def _render(self, rays, noise):
        placed, radius = upload(rays), self.ball.radius
        along = (placed.origins * placed.directions).sum(dim=1, keepdims=True)
        passed = (placed.origins.sqr().sum(dim=1, keepdims=True) - along.sqr()).stop_grad()
        if noise is not None:
            radius = radius + (jt.array(noise["breath"]) - 0.5) * 0.02
        opacity = ((radius.sqr() - passed) * self.ball.sharpness.exp()).sigmoid()
        rgb = opacity * self.ball.color.sigmoid().reshape((1, 3))
        return over_background(rgb, opacity, self.behind), opacity


def test_it_trains_resumes_and_is_shown_as_every_kind(tmp_path, capsys):
    with registered("ball", Method(BallConfig, BallModel)):
        conf = write_conf(tmp_path, "model { type = ball, ball { radius = 0.35 } }")
        folder, resumed = tmp_path / "trained", tmp_path / "resumed"
        assert run_conf(conf, folder, settings=(*SHORT[:3], "train.val_freq=6", "train.val_mesh_freq=6")) == 0
        assert run_conf(conf, stopped_after(3, folder, resumed), "--is_continue") == 0
        assert contents(saved(resumed, 6)) == contents(saved(folder, 6))
        assert " radius 0.3" in (folder / "logs/train.log").read_text()
        assert_every_parameter_moves(folder)
        assert run_conf(conf, folder, "--mode", "validate_image", "--image", "1") == 0
        assert read_image(folder / "validations_fine/00000006_0_1.png")[:12].any()
        assert run_conf(conf, folder, "--mode", "validate_mesh", "--resolution", "24") == 0
        mesh = trimesh.load(folder / "meshes/00000006.ply", process=False)
        radius = np.linalg.norm(mesh.vertices - [0.3, -0.2, 4.0], axis=1) / 2.5  # of write_scene's frame
        assert np.allclose(radius, saved(folder, 6).tensors["ball"]["radius"], atol=0.01)
        assert run_conf(conf, tmp_path / "none", settings=("model.ball.radiuss=1",)) == 2
        assert "did you mean model.ball.radius?" in capsys.readouterr().err

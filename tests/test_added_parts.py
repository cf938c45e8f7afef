"""What can be added from outside: a surface field, an estimator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import trimesh
from runs import ROOT, SHORT, contents, run, saved
from test_fast_background import OPEN
from test_fast_neus import SHORT as FAST
from trainings import stopped_after, trainer_of

from models.conf import flat, load_config
from models.config.strict import ConfigError, limits
from models.estimators.base import Estimator, upload
from models.estimators.conf import EstimatorConfig
from models.fields.registry import SURFACES, Component
from models.machine.backend import jt
from models.methods.confs import ESTIMATORS
from models.ops.volrend import dense_offsets, points_along
from models.results.context import with_table
from models.structs import FieldOutput, RaySamples, SampleRequest, Var


@dataclass(frozen=True)
class SphereConfig:
    """The block `model.toy`."""

    radius: float = limits(0.5, above=0)
    channels: int = limits(4, at_least=1)

    @property
    def features(self) -> int:
        return self.channels

    @property
    def parameters(self) -> int:
        return 4 + self.channels

    def check(self) -> None:
        if self.radius > 1:
            raise ConfigError(f"model.toy.radius = {self.radius:g}: must lie in the unit sphere")


class Sphere(jt.nn.Module):
    """A sphere with a learned centre and radius, and one feature for all of it; a `DistanceField`."""

    active = levels = 0

    def __init__(self, block: SphereConfig, generator: np.random.Generator) -> None:
        super().__init__()
        self.centre = jt.array(generator.uniform(-0.1, 0.1, 3).astype(np.float32))
        self.radius = jt.array(np.float32([block.radius]))
        self.shade = jt.array(generator.normal(size=block.channels).astype(np.float32))

    def bind(self):
        return self

    def activate(self, first, progress):
        pass

    def begin_with_sphere(self, radius, is_inverted=False):
        self.radius.update(jt.array(np.float32([radius])))
        self.radius.start_grad()

    def begin_with(self, draw, levels):
        distances = [(self(jt.array(points)).numpy() - expected).mean() for points, expected in [draw()]]
        self.begin_with_sphere(self.radius.item() + distances[0])

    def distance(self, points: Var) -> Var:
        return self.evaluate(points).sdf

    def values(self, points: Var) -> Var:
        values = self.evaluate(points)
        return jt.concat([values.sdf, values.feature], dim=1)

    def evaluate(self, points: Var) -> FieldOutput:
        offset = points - self.centre.reshape((1, 3))
        away = (offset.sqr().sum(dim=1, keepdims=True) + 1e-12).sqrt()
        feature = self.shade.reshape((1, -1)).broadcast((points.shape[0], self.shade.shape[0]))
        return FieldOutput(away - self.radius, feature, offset / away)

    def execute(self, points: Var) -> Var:
        return self.evaluate(points).sdf


TOY = ("model.surface=toy", "model.toy.radius=0.4", "model.rendering_network.d_feature=4")


@pytest.mark.slow
def test_a_surface_of_another_kind_trains_within_neus_and_resumes(monkeypatch, tmp_path):
    monkeypatch.setitem(SURFACES, "toy", Component(SphereConfig, Sphere))
    trained = tmp_path / "trained"
    assert run(trained, settings=(*SHORT[:3], "train.val_freq=6", "train.val_mesh_freq=6", *TOY)) == 0
    assert (trained / "validations_fine/00000006_0_0.png").is_file()
    first, last = (saved(trained, step).tensors["sdf_network_fine"] for step in (3, 6))
    assert set(last) == {"centre", "radius", "shade"}
    assert all(np.any(first[name] != last[name]) for name in ("centre", "shade"))
    folder = stopped_after(3, trained, tmp_path / "resumed")
    assert run(folder, "--is_continue", settings=(*SHORT, *TOY)) == 0
    assert contents(saved(folder, 6)) == contents(saved(trained, 6))
    mesh = trimesh.load(trained / "meshes/00000006.ply")
    extent = (mesh.vertices.max(axis=0) - mesh.vertices.min(axis=0)) / 2
    unit = np.linalg.norm(np.array(saved(trained, 6).state["scene_to_world"])[:3, 0])
    assert np.allclose(extent / unit, last["radius"], atol=0.02)


@dataclass(frozen=True)
class UniformConfig(EstimatorConfig):
    """The block `model.uniform`."""

    n_samples: int = limits(64, at_least=1)


class UniformEstimator(Estimator):
    """Intervals of equal length between near and far, shifted together."""

    def __init__(self, conf: UniformConfig) -> None:
        self.conf = conf

    def draw_noise(self, entries, generator):
        return {"shift": generator.random((entries, 1), dtype=np.float32)}

    def sample(self, request: SampleRequest) -> RaySamples:
        rays, count = upload(request.rays), self.conf.n_samples
        shift = 0.5 if request.noise is None else jt.array(request.noise["shift"])
        delta = (rays.far - rays.near) / count  # [R, 1]
        depths = rays.near + (jt.array(np.arange(count, dtype=np.float32)[None]) + shift) * delta  # [R, N]
        positions = points_along(rays.origins, rays.directions, depths).reshape((-1, 3))
        shape = (len(request.rays), count, 3)
        directions = rays.directions.unsqueeze(1).broadcast(shape).reshape((-1, 3))
        deltas = delta.broadcast(depths.shape).reshape((-1, 1))
        return RaySamples(
            *(value.stop_grad() for value in (positions, directions, deltas)),
            dense_offsets(len(request.rays), count),
            depths.reshape((-1, 1)).stop_grad(),
            per_ray=count,
        )


UNIFORM = Component(UniformConfig, lambda conf, generator: UniformEstimator(conf.block("uniform")))


def test_the_plan_prints_the_keys_of_the_estimator_that_samples(monkeypatch):
    monkeypatch.setitem(ESTIMATORS, "uniform", UNIFORM)
    settings = (f"dataset.data_dir={ROOT}/data/demo", "model.neus_renderer.n_outside=8")
    rows, models, unused = {}, {}, {}
    for name in ("neus_renderer", "uniform"):
        conf = load_config(
            ROOT / "confs/debug.conf", "", (*settings, f"model.estimator={name}", "model.uniform.n_samples=24")
        )
        trainer = trainer_of(conf)
        plan = with_table(trainer.model.plan, conf.model, conf.train, trainer.model.weights, flat(conf))
        rows[name], models[name], unused[name] = dict(plan.rows), trainer.model, plan.unused
        assert conf.model.parameters == sum(v.numel() for n in models[name].networks.values() for v in n.parameters())
    assert rows["neus_renderer"]["background"].startswith("NeRF: outside the unit sphere [model.neus_renderer.n_out")
    assert rows["uniform"]["background"].startswith("black") and "nerf" not in models["uniform"].networks
    assert rows["uniform"]["samples"] == "train.batch_size = 64, model.uniform.n_samples = 24"
    assert "model.neus_renderer" in unused["uniform"] and "model.neus_renderer" not in unused["neus_renderer"]
    assert [models[name].level_set.background for name in rows] == ["masks or model.neus_renderer.n_outside", "masks"]


@pytest.mark.slow
def test_an_estimator_of_another_kind_trains_within_neus_and_is_shown(monkeypatch, tmp_path):
    monkeypatch.setitem(ESTIMATORS, "uniform", UNIFORM)
    settings = (*SHORT[:3], "train.val_freq=6", "train.val_mesh_freq=0", "model.estimator=uniform")
    assert run(tmp_path / "trained", settings=(*settings, "model.uniform.n_samples=24")) == 0
    assert (tmp_path / "trained/validations_fine/00000006_0_0.png").is_file()
    folder = stopped_after(3, tmp_path / "trained", tmp_path / "resumed")
    assert run(folder, "--is_continue", settings=(*settings, "model.uniform.n_samples=24")) == 0
    assert contents(saved(folder, 6)) == contents(saved(tmp_path / "trained", 6))


@pytest.mark.slow
def test_a_surface_of_another_kind_begins_as_fast_neus_wants(monkeypatch):
    """With the radius of the plan."""
    monkeypatch.setitem(SURFACES, "toy", Component(SphereConfig, Sphere))
    settings = (*OPEN, *FAST, "model.surface=toy", "model.toy.channels=7")
    model = trainer_of(load_config(ROOT / "confs/fast.conf", "demo", settings)).model
    assert model.fields.sdf.radius.item() == pytest.approx(0.3)

"""What can be added from outside: a surface field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import trimesh
from runs import SHORT, contents, run, saved
from trainings import stopped_after

from models.config.strict import ConfigError, limits
from models.fields.registry import SURFACES, FieldKind
from models.machine.backend import jt
from models.structs import FieldOutput, Var


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

    def __init__(self, block: SphereConfig, generator: np.random.Generator) -> None:
        super().__init__()
        self.centre = jt.array(generator.uniform(-0.1, 0.1, 3).astype(np.float32))
        self.radius = jt.array(np.float32([block.radius]))
        self.shade = jt.array(generator.normal(size=block.channels).astype(np.float32))

    def at_weights(self):
        return self

    def distance(self, points: Var) -> Var:
        return self.evaluate(points).sdf

    def evaluate(self, points: Var) -> FieldOutput:
        offset = points - self.centre.reshape((1, 3))
        away = (offset.sqr().sum(dim=1, keepdims=True) + 1e-12).sqrt()
        feature = self.shade.reshape((1, -1)).broadcast((points.shape[0], self.shade.shape[0]))
        return FieldOutput(away - self.radius, feature, offset / away)


TOY = ("model.surface=toy", "model.toy.radius=0.4", "model.rendering_network.d_feature=4")


@pytest.mark.slow
def test_a_surface_of_another_kind_trains_within_neus_and_resumes(monkeypatch, tmp_path):
    monkeypatch.setitem(SURFACES, "toy", FieldKind(SphereConfig, Sphere))
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

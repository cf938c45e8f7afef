"""Few samples give the surface that all of them give; across blocks, after a kill, and for any kind of field."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from dense_extraction import (
    BOX,
    Analytic,
    cut_off,
    marching_cubes,
    minus_density,
    sample_grid,
    sphere,
    steep_in_a_corner,
    thin,
    torus,
)

from data.errors import UserError
from models.mesh import sparse
from models.mesh.extraction import EmptySurfaceError, mixed_corners
from models.results.surface_metrics import point_to_mesh

CHUNK = 2**16
FIELDS = {
    "sphere, another level": (sphere, True, 0.1),
    "thin": (thin, True, 0.0),
    "steeper than it looks": (steep_in_a_corner, True, 0.0),
    "distance cut off": (cut_off, False, 0.0),
    "density": (minus_density, False, 25.0),
}


def dense(function, threshold, resolution):
    return marching_cubes(sample_grid(function, *BOX, resolution, CHUNK), threshold, *BOX)


def extract(function, resolution=140, bounded=True, threshold=0.0, **named):
    return sparse.extract(Analytic(function, bounded), *BOX, resolution, threshold, CHUNK, **named)


@pytest.mark.parametrize("name", FIELDS)
def test_sparse_mesh_is_the_dense_mesh(name):
    function, bounded, threshold = FIELDS[name]
    found = extract(function, bounded=bounded, threshold=threshold).mesh
    expected = dense(function, threshold, 140)
    assert (len(found.vertices), len(found.faces)) == (len(expected.vertices), len(expected.faces))
    apart = max(point_to_mesh(found.vertices, expected).max(), point_to_mesh(expected.vertices, found).max())
    assert apart < 1e-3 * 2.0 / 139
    assert found.is_watertight and found.volume == pytest.approx(expected.volume, rel=1e-6)


def test_few_samples_are_taken_however_steep_the_field_is():
    whole, quarter = extract(sphere, 256), extract(lambda points: 0.25 * sphere(points), 256)
    assert quarter.queries == whole.queries == round(whole.share * 256**3)
    assert whole.share < 0.06 and extract(minus_density, 256, False, 25.0).share < 0.2
    assert np.array_equal(quarter.mesh.vertices, whole.mesh.vertices)


def test_surface_that_no_rule_foresees_is_followed_into_every_block(monkeypatch):
    """The rule sees the first cell only; all that hangs together with it is found all the same."""

    def may_cross(values, spacing, coarse):
        seen = np.zeros([count - 1 for count in values.shape], bool)
        for place in np.argwhere(mixed_corners(values))[: int(coarse)]:
            seen[tuple(place)] = True
        return seen

    blind = SimpleNamespace(coarsest=32, may_cross=may_cross, text=lambda: "blind", widened=lambda slope: blind)
    monkeypatch.setattr(sparse, "_rule", lambda *_: blind)
    monkeypatch.setattr(sparse, "mixed_corners", lambda values: np.zeros([n - 1 for n in values.shape], bool))
    found = extract(torus).mesh
    assert len(found.faces) == len(dense(torus, 0.0, 140).faces) and found.is_watertight


def test_kill_loses_at_most_a_block_and_the_mesh_is_the_same(tmp_path):
    expected = extract(torus, 200)
    kept, kills = 0, 0
    for most in (60_000, 150_000, 240_000):
        try:
            sparse.extract(Analytic(torus, most=most), *BOX, 200, 0.0, CHUNK, folder=tmp_path)
        except KeyboardInterrupt:
            kills += 1
        files = len(list(tmp_path.rglob("*.npz")))
        assert files >= kept
        kept = files
    assert kills and kept
    field = Analytic(torus)
    found = sparse.extract(field, *BOX, 200, 0.0, CHUNK, folder=tmp_path)
    assert found.resumed >= kept and field.queries < expected.queries
    assert np.array_equal(found.mesh.vertices, expected.mesh.vertices)
    assert np.array_equal(found.mesh.faces, expected.mesh.faces)
    found.store.clear()
    assert not list(tmp_path.rglob("*.npz"))


def test_kept_blocks_of_another_surface_or_damaged_ones_are_not_used(tmp_path):
    extract(torus, folder=tmp_path)
    assert extract(sphere, folder=tmp_path).resumed == 0
    for path in tmp_path.rglob("*.npz"):
        path.write_bytes(path.read_bytes()[:100])
    again = extract(torus, folder=tmp_path)
    assert again.resumed == 0 and again.mesh.is_watertight


def test_full_disk_is_said_before_the_work(tmp_path, monkeypatch):
    field = Analytic(torus)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    with pytest.raises(UserError, match="GB of disk.*lower --resolution"):
        sparse.extract(field, *BOX, 200, 0.0, CHUNK, folder=tmp_path / "new")
    assert field.queries < 200_000 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("bounded", [True, False])
def test_no_surface_is_said(bounded):
    cases = {"from 0.5 to 0.5": lambda points: np.full(len(points), 0.5, np.float32)}
    cases["diverged"] = lambda points: np.where(points[:, 0] > 0.3, np.nan, sphere(points))
    for words, function in cases.items():
        with pytest.raises(EmptySurfaceError, match=words):
            extract(function, 80, bounded)

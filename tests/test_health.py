"""Problems are detected from a few values and reported once with the usual cause; a good run gives no report."""

import numpy as np
import pytest

from models.methods.protocol import LevelSet
from models.runs import health
from models.runs.health import FLAT_VALIDATIONS, Vitals, findings

DISTANCE = LevelSet(np.negative, 0.0, "the signed distance")  # its function is not called here


def course(psnr=(), inv_s=(), **last):
    """Validations every 100 steps with these numbers."""
    count = max(len(psnr), len(inv_s), 1)
    usual = {"inv_s": 50.0, "lowest": -0.2, "inside_share": 0.1, "psnr": 25.0, "surface": DISTANCE}
    values = [dict(usual) for _ in range(count)]
    for name, course_of in (("psnr", psnr), ("inv_s", inv_s)):
        for entry, value in zip(values, course_of, strict=False):
            entry[name] = value
    values[-1] |= last
    return [Vitals(step=100 * (index + 1), **value) for index, value in enumerate(values)]


HEALTHY = {
    "nothing yet": [],
    "converged": course(psnr=[28.0] * 20),
    "low, but moving": course(psnr=[12.0, 12.1, 12.0, 12.2, 12.3, 12.4, 12.5, 12.6]),
    "low, but too early to say": course(psnr=[12.0] * (FLAT_VALIDATIONS - 1)),
    "no reports": course(psnr=[None] * 20),
    "a dip at the start": course(inv_s=[20.0, 14.0, 11.6, 11.5, 11.6, 13.0]),
    "sharp and falling a little": course(inv_s=[900.0, 800.0, 700.0, 600.0, 500.0]),
    "nearly full": course(inside_share=health.FULL_SHARE - 0.01),
    "surface touched": course(lowest=0.0),
}
ILL = {
    "empty": (course(lowest=0.1, inside_share=0.0), "no surface inside the region of interest"),
    "full": (course(inside_share=1.0), "fills the whole region of interest"),
    "flat": (course(psnr=[12.0] * FLAT_VALIDATIONS), "batch PSNR has stayed at 12.0 dB"),
    "fog": (course(inv_s=[20.0, 17.0, 14.0, 11.0, 8.0]), "from 20.0 to 8.0"),
}


def test_nothing_is_said_of_a_working_run_and_each_trouble_once():
    assert not [name for name, history in HEALTHY.items() if findings(history)]
    for name, (history, words) in ILL.items():
        found = findings(history)
        assert list(found) == [name]
        assert words in found[name] and f"step {history[-1].step}: " in found[name] and "usually" in found[name]


@pytest.mark.parametrize(("radius", "share"), [(0.5, 0.125), (2.0, 1.0)])
def test_vitals_of_a_sphere_are_its_own(radius, share):
    points = health.probe_points()
    assert len(points) > 5000 and (np.linalg.norm(points, axis=1) < 1.0).all()
    seen = health.vitals(7, 30.0, np.linalg.norm(points, axis=1) - radius, DISTANCE, [10.0, np.inf, np.nan, 20.0])
    assert seen.inside_share == pytest.approx(share, abs=0.02) and seen.psnr == 15.0
    assert seen.lowest == pytest.approx(-radius, abs=0.1)
    assert health.vitals(7, 30.0, points, DISTANCE, []).psnr is None


def test_a_density_is_judged_by_its_own_level():
    field = LevelSet(np.negative, 25.0, "minus the density")
    points = health.probe_points()
    radius = np.linalg.norm(points, axis=1)
    fog = health.vitals(7, None, np.full(len(points), -3.0), field, [])
    ball = health.vitals(7, None, np.where(radius < 0.5, -90.0, 0.0), field, [])
    assert findings([ball] * 20) == {} and ball.inside_share == pytest.approx(0.125, abs=0.02)
    assert list(findings([fog])) == ["empty"] and "minus the density is above -3.000" in findings([fog])["empty"]

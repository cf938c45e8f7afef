"""Files of skipped steps with arrays or texts of a wrong shape or type: an error message, not a traceback."""

import dataclasses
import json

import numpy as np
import pytest
from config_samples import changed
from test_guard import INPUTS

from data.errors import UserError
from models.methods.conf import to_hocon
from models.monitoring.anomaly import load_anomaly, save_anomaly
from models.monitoring.replay import _require_noise, replay
from models.training.guard import BadStep


@pytest.fixture
def members(tmp_path):
    """The arrays of a good file."""
    bad = BadStep(INPUTS, {"net.w": np.ones(3, np.float32)}, np.float32([np.nan]), ("the loss",))
    with np.load(save_anomaly(tmp_path, bad, to_hocon(changed()), {}).path) as file:
        return dict(file)


SPOILT = {
    "no rays": {"view": np.zeros(0, np.int32)},
    "photographs in fractions": {"view": np.float32([3, 3])},
    "a photograph that is one number": {"view": np.int32(3)},
    "fewer colours than rays": {"rgb": np.zeros((1, 3), np.float32)},
    "four colours": {"rgb": np.zeros((2, 4), np.float32)},
    "colours as texts": {"rgb": np.full((2, 3), "a")},
    "complex colours": {"rgb": np.zeros((2, 3), np.complex64)},
    "rays without width": {"rays/origins": np.zeros(2, np.float32)},
    "rays of two numbers": {"rays/directions": np.zeros((2, 2), np.float32)},
    "a mask of two numbers": {"mask": np.zeros((2, 2), np.float32)},
    "a mask of another length": {"mask": np.zeros((3, 1), np.float32)},
    "a ray's part too many": {"rays/other": np.zeros((2, 3), np.float32)},
    "half a jitter": {"noise/inside": np.zeros((2, 1), np.float32)},
    "jitter for other rays": {f"noise/{name}": np.zeros((3, 1), np.float32) for name in ("inside", "outside")},
    "weights as texts": {"weights/net.w": np.array(["a"])},
    "one moment of two": {"moments/exp_avg/net.w": np.ones(3, np.float32)},
    "moments of other shapes": {f"moments/{name}/net.w": np.ones(4, np.float32) for name in ("exp_avg", "exp_avg_sq")},
}
ADAM = {"learning_rate": 0.1, "steps": 3, "beta_2": 0.999, "epsilon": 1e-8, "factors": {}}
EXAMPLES = {name: [1.0] for name in ("weight", "gradient", "exp_avg", "exp_avg_sq")}
FAULT = {"name": "net.w", "size": 3, "count": 1, "is_all": True, "places": [1], "examples": EXAMPLES, "ranges": {}}
METAS = {
    "a step in words": {"step": "6"},
    "a negative step": {"step": -1},
    "a step beyond counting": {"step": 10**30},
    "a step that is true": {"step": True},
    "a conf that is a number": {"conf": 3},
    "findings that are one": {"findings": "the loss"},
    "findings that are numbers": {"findings": [1]},
    "states in a list": {"states": []},
    "numbers for Adam in a list": {"adam": [1]},
    "numbers for Adam in words": {"adam": ADAM | {"epsilon": "1e-8"}},
    "factors in a list": {"adam": ADAM | {"factors": [1.0]}},
    "a step of Adam before the first": {"adam": ADAM | {"steps": 0}},
    "faults without examples": {"faults": [{"name": "a"}]},
    "examples of other lengths": {"faults": [FAULT | {"places": [1, 2]}]},
    "ranges in a list": {"faults": [FAULT | {"ranges": [1]}]},
}


@pytest.mark.parametrize("case", SPOILT | METAS)
def test_a_file_of_another_shape_or_kind_is_refused(case, members, tmp_path):
    if case in METAS:
        meta = json.loads(str(members["meta_json"])) | METAS[case]
        members["meta_json"] = np.array(json.dumps(meta))
    np.savez(tmp_path / "bad.npz", **(members | SPOILT.get(case, {})))
    words = "is damaged, or is not a step that this program skipped|its batch does not fit|its jitter does not fit"
    with pytest.raises(UserError, match=rf"bad\.npz: ({words})") as caught:
        replay(tmp_path / "bad.npz", print)
    assert "\n" not in str(caught.value)


def jitter(outside):
    return {"inside": np.zeros((2, 1), np.float32), "outside": np.zeros((2, outside), np.float32)}


def test_jitter_of_another_model_is_refused(members, tmp_path):
    np.savez(tmp_path / "good.npz", **members)
    anomaly = load_anomaly(tmp_path / "good.npz")

    class Drawing:
        """A trainer whose model jitters two rays so."""

        model = property(lambda self: self)

        def draw_noise(self, count, generator):
            return jitter(4)

    for noise in (None, jitter(4)):
        _require_noise(Drawing(), dataclasses.replace(anomaly, noise=noise), 2, tmp_path)
    with pytest.raises(UserError, match="jitter does not fit its conf"):
        _require_noise(Drawing(), dataclasses.replace(anomaly, noise=jitter(9)), 2, tmp_path)


def test_weights_of_another_network_are_refused(members, tmp_path):
    np.savez(tmp_path / "good.npz", **members)
    with pytest.raises(UserError, match="its weights do not fit its conf"):
        replay(tmp_path / "good.npz", print)

"""Every field of every request of the Python interface: a value is refused with one sentence before work, or used."""

import dataclasses
import math
from pathlib import Path
from unittest.mock import Mock

import pytest
from test_callbacks import conf_in

from data.errors import UserError
from data.limits import limits_of
from models.commands import flags, interface
from models.mesh.extraction import EmptySurfaceError
from models.requests import (
    EvaluationRequest,
    ImageRequest,
    MeshRequest,
    PreparationRequest,
    TrainingRequest,
    VideoRequest,
)
from models.results.trained import TrainedModel

NAMES = ("", "x", "no such file", "\0", "a/../../b", "texture", "auto")
ODD = (None, math.nan, math.inf, -math.inf, -1, 0, 1, 2.5, 1e30, 10**400, 10**5000, True, *NAMES, *map(Path, NAMES))
ODD += (b"x", (), (0.0,), ("x",), (0.0,) * 6, (math.nan,) * 6, (0, 0, 0, 1, 1, 1), [1], {}, object(), MeshRequest(16))
MESH = MeshRequest(16)
BASES = (MESH, VideoRequest(seconds=0.1, mesh=MESH), EvaluationRequest(MESH), ImageRequest(0, 16))
BASES += (PreparationRequest(Path("no such folder")), TrainingRequest())
WRONG = {  # what the flags refuse, and pairs that exclude each other
    MeshRequest: ({"decimate": 0}, {"decimate": 3}, {"decimate": -1}, {"simplify": -1.0}, {"texture_size": 10**6}),
    VideoRequest: ({"shown": ()}, {"shown": ("x",)}, {"path": 5}, {"path": "no such file"}, {"fps": 1e-30}),
    EvaluationRequest: ({"scan": 24}, {"tau": 0.0}, {"gt": "a.ply"}, {"csv": 5}),
    ImageRequest: ({"level": 0}, {"level": -1}, {"view": True}),
    PreparationRequest: (
        {"frames": 2},
        {"marker": 0.0},
        {"masks": None},
        {"images": Path("no such folder")},
        {"boxes": (("a",),)},
    ),
    TrainingRequest: ({"is_continue": True, "overwrite": True}, {"checkpoint": Path("no")}, {"gpu": 1.5}),
}
WRONG[PreparationRequest] += tuple({"boxes": boxes, "masks": "box"} for boxes in (((),), (("a",),), (("a", "x"),)))
WRONG[PreparationRequest] += ({"boxes": (("a", "1", "2", "3", "4"),)},)
WRONG[MeshRequest] += ({"simplify": math.nan}, {"output": Path("x.xyz")}, {"bbox": (0.0,)}, {"resolution": 10**6})
WRONG[MeshRequest] += ({"decimate": 9, "simplify": 1.0}, {"up": "z", "frame": "unit"})
WRONG[MeshRequest] += ({"color": "texture", "output": Path("a.ply")}, {"threshold": "0"}, {"clean": True})


class Reached(Exception):
    """All checks were passed."""


def calls(request, conf=None, model=None):
    """The functions that take a request."""
    model = model or Mock(TrainedModel, working=Mock(side_effect=Reached), scene=Mock(n_views=3), experiment=Mock())
    if isinstance(request, MeshRequest):
        yield lambda: interface.extract_mesh(model, request)
        yield lambda: interface.color_mesh(conf, request)
        yield lambda: interface.reconstruct("no such folder", mesh=request)
    elif isinstance(request, VideoRequest):
        yield lambda: interface.render_video(model, request)
    elif isinstance(request, EvaluationRequest):
        yield lambda: interface.evaluate(model, request)
        yield lambda: interface.reconstruct("no such folder", evaluation=request)
    elif isinstance(request, ImageRequest):
        yield lambda: interface.render(model, request.view, request.level)
    elif isinstance(request, PreparationRequest):
        yield lambda: interface.prepare(conf, **vars(request))
        photographs = {name: value for name, value in vars(request).items() if name != "images"}
        yield lambda: interface.reconstruct(request.images, **photographs)
    else:
        yield lambda: interface.train(conf, **vars(request))


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """Opening anything passes all checks."""
    monkeypatch.chdir(tmp_path)
    for name in ("models.results.colored.color_file", "models.results.references.read_references"):
        monkeypatch.setattr(name, Mock(side_effect=Reached))
    monkeypatch.setattr("models.results.camera_paths.chosen_path", Mock(side_effect=Reached))
    for name in ("open_training", "open_results"):  # last: the modules above import from this one
        monkeypatch.setattr(f"models.results.experiment.{name}", Mock(side_effect=Reached))
    return conf_in(tmp_path / "exp")


def outcome(call):
    try:
        call()
    except UserError as error:
        assert "\n" not in str(error) and str(error)
        return "refused"
    except Reached:
        return "reached"
    return "done"


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
def test_every_field_is_refused_or_used_whatever_its_value(base, conf, tmp_path):
    before, seen = sorted(tmp_path.iterdir()), set()
    for field in dataclasses.fields(base):
        for value in ODD:
            request = dataclasses.replace(base, **{field.name: value})
            seen |= {outcome(call) for call in calls(request, conf)}
    assert seen <= {"refused", "reached"} and "refused" in seen and sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
def test_what_the_flags_refuse_the_library_refuses(base, conf):
    for values in WRONG[type(base)]:
        request = dataclasses.replace(base, **values)
        assert {outcome(call) for call in calls(request, conf)} == {"refused"}, values


@pytest.mark.parametrize("values", [{"minutes": value} for value in ODD if value not in (None, 1, 2.5, "auto")])
def test_minutes_and_devices_of_a_reconstruction_are_checked(values, tmp_path):
    (tmp_path / "photos").mkdir()
    for other in (values, {"device": "gpu"}, {"gpu": -1}, {"language": "fr"}):
        with pytest.raises(UserError):
            interface.reconstruct(tmp_path / "photos", **other)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.parametrize("name", ["load_scene", "inspect", "train", "open_model", "prepare", "color_mesh", "evaluate"])
def test_every_argument_is_of_the_class_of_its_annotation(name, conf):
    others = {"prepare": ("photos",), "color_mesh": (MESH,), "evaluate": (EvaluationRequest(MESH),)}.get(name, ())
    for value in (*ODD, "debug.conf", conf.dataset):
        assert outcome(lambda value=value: getattr(interface, name)(value, *others)) == "refused", value
    for value in (5, None, interface.Callback(), [interface.Callback], [None], (call for call in ())):
        assert outcome(lambda value=value: interface.train(conf, callbacks=value)) == "refused", value
    with pytest.raises(UserError, match="language = 'fr'"):
        interface.evaluate(Mock(TrainedModel), EvaluationRequest(MESH), language="fr")
    for value in (5, "train.end_iter=5", (5,), None):
        assert outcome(lambda value=value: interface.read_conf("debug.conf", overrides=value)) == "refused", value


def test_flags_take_their_ranges_from_the_requests():
    named = {
        flag.name: flag.options.get("type") for flag in (*flags.MESH, *flags.VIDEO, *flags.EVALUATION, flags.LEVEL)
    }
    for kind, name in ((MeshRequest, "decimate"), (MeshRequest, "texture_size"), (VideoRequest, "fps")):
        lowest = limits_of(kind, name)["at_least"]
        assert named[f"--{name}"](str(lowest)) == lowest
        with pytest.raises(Exception, match=r"not a whole number|must be"):
            named[f"--{name}"](str(lowest - 1))


@pytest.mark.slow
def test_extreme_values_that_are_accepted_give_a_result(tmp_path):
    conf = conf_in(tmp_path)
    interface.train(conf)
    extreme = ({"threshold": 1e30}, {"threshold": -1e30}, {"bbox": (-1e30,) * 3 + (1e30,) * 3}, {"simplify": 1e30})
    extreme += ({"bbox": (1e20,) * 3 + (1.1e20,) * 3}, {"decimate": 4}, {"decimate": 2**31 - 1}, {"resolution": 2})
    with interface.open_model(conf) as model:
        for values in (*extreme, {"simplify": 1e-300}, {"color": "texture", "texture_size": 1}):
            request = dataclasses.replace(MESH, **{"threshold": -0.1, "is_refined": True, **values})
            try:
                assert len(interface.extract_mesh(model, request).mesh.faces) > 0, values
            except (UserError, EmptySurfaceError) as error:
                assert str(error), values
        for name in ("gt", "points", "dtu", "mesh_file"):
            request = EvaluationRequest(MESH, **{name: Path("no such file")})
            assert outcome(lambda request=request: interface.evaluate(model, request)) == "refused", name
        coloured = dataclasses.replace(MESH, mesh_file=Path("no such file"))
        assert {outcome(call) for call in calls(coloured, conf, model)} == {"refused"}
        image = interface.render(model, 0, 2**31 - 1)
        assert min(image.rendered.rgb.shape) > 0
        for values in ({"seconds": 1e6, "fps": 240.0}, {"seconds": 1e-30}, {"level": 2**31 - 1}):
            film = VideoRequest(**{"seconds": 0.1, "level": 16, **values})
            assert outcome(lambda film=film: interface.render_video(model, film)) in ("done", "refused")

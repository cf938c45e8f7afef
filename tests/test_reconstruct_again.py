"""What `--mode reconstruct` keeps: a call without --overwrite deletes no checkpoint, and file times decide nothing."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from checkpoint_samples import make_checkpoint

import exp_runner
from data.errors import UserError
from data.io.images import write_image
from models.checkpoints.folder import EARLIER, latest_checkpoint
from models.checkpoints.ours import save_checkpoint
from models.commands import functions, reconstruction, reconstruction_plan
from models.commands.command import EXIT_DONE, EXIT_OF_SIGNAL
from models.commands.reconstruction_plan import ReconstructionPlan
from models.runs.stops import Interrupted

pytestmark = pytest.mark.slow

FOLDER, SCENE = Path("exp/photos/fast"), Path("public_data/photos")
CHECKPOINTS, PLAN = FOLDER / "checkpoints", FOLDER / "reconstruct.json"


class Links:
    """Stands for the steps: a preparation that writes three photographs, trainings that add 10 steps."""

    def __init__(self, monkeypatch):
        self.refusal, self.started_at, self.lengths = None, [], []  # the last two: of each training
        self.beginnings = []  # the checkpoint given to each training
        self.stops_before, self.finishes = 0, 0  # how many trainings end without a step, and how many are complete
        monkeypatch.setattr(functions, "prepare", self.prepare)
        monkeypatch.setattr(functions, "inspect", lambda conf: ())
        monkeypatch.setattr(functions, "train", self.train)
        for name in ("_extracted", "_evaluated"):
            monkeypatch.setattr(reconstruction, name, lambda *given: True)
        monkeypatch.setattr(reconstruction, "warnings", lambda figures: ())
        monkeypatch.setattr(reconstruction, "read_figures", lambda path: {})

    def prepare(self, conf, images, overwrite, **options):
        if self.refusal:
            raise UserError(self.refusal)
        if overwrite or not SCENE.exists():
            (SCENE / "image").mkdir(parents=True, exist_ok=True)
            for view in range(3):
                write_image(SCENE / f"image/{view:03d}.png", np.zeros((8, 8, 3), np.uint8))
            (SCENE / "cameras_sphere.npz").write_bytes(b"%d" % len(self.started_at))

    def train(self, conf, **options):
        self.lengths.append(conf.train.end_iter)
        self.beginnings.append(options.get("checkpoint"))
        found = latest_checkpoint(CHECKPOINTS, pytest.fail)
        self.started_at.append(found.step if found else 0)
        if self.stops_before > 0:
            self.stops_before -= 1
            raise Interrupted(signal.SIGTERM, 0)
        save_checkpoint(CHECKPOINTS, make_checkpoint(self.started_at[-1] + 10))
        if len(self.lengths) > self.finishes:
            raise Interrupted(signal.SIGTERM, 0)


def interrupted(*given):
    raise KeyboardInterrupt


@pytest.fixture
def links(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    return Links(monkeypatch)


def call(*flags):
    given = () if "auto" in flags else ("--set", "train.end_iter=99")
    return exp_runner.main(["--mode", "reconstruct", "--images", "photos", *given, *flags])


def steps(folder=CHECKPOINTS):
    return sorted(int(path.stem[5:]) for path in folder.glob("ckpt_*.safetensors"))


def settle(**others):
    FOLDER.mkdir(parents=True, exist_ok=True)
    PLAN.write_text(json.dumps({"minutes": 10, "settings": {}, **others}))


def test_checkpoints_of_others_are_refused_before_the_cameras_are_sought(links, capsys):
    save_checkpoint(CHECKPOINTS, make_checkpoint(5))
    assert call() == 2 and "did not make; pass --overwrite" in capsys.readouterr().err and not SCENE.exists()


def test_overwrite_replaces_a_damaged_plan_whatever_the_clock_says(links, capsys):
    """As the sentence on a damaged plan advises; and interrupted, it goes on."""
    call("--minutes", "3")
    assert call() == EXIT_OF_SIGNAL + 15 and call("--minutes", "5") == 2
    assert "contains a reconstruction with --minutes 3; pass that to continue it" in capsys.readouterr().err
    PLAN.write_text("{")
    assert call() == 2
    links.refusal, before = "photos: no such photographs", PLAN.read_bytes()
    assert call("--overwrite") == 2 and PLAN.read_bytes() == before and steps() == [10, 20]
    links.refusal = None
    call("--overwrite")
    assert json.loads(PLAN.read_text())["minutes"] == 10
    later = os.stat(PLAN).st_mtime + 3600
    os.utime(PLAN, (later, later))  # as a copy in another order, or a clock set back, leaves it
    call()
    assert links.started_at == [0, 10, 0, 10] and 20 in steps()


def test_an_overwrite_that_ends_before_its_first_checkpoint_loses_nothing(links):
    call()
    call()
    links.stops_before = 1
    call("--overwrite")
    assert steps() == [] and steps(CHECKPOINTS / EARLIER) == [10, 20]
    call()
    call()
    assert links.started_at == [0, 10, 0, 0, 10], "the new training never goes on from the earlier one's"
    assert steps() == [10, 20] and steps(CHECKPOINTS / EARLIER) == [10, 20], "only --overwrite deletes"


def test_the_earlier_checkpoints_go_once_the_new_training_is_done(links, monkeypatch, capsys):
    call()
    with pytest.MonkeyPatch.context() as context:  # while the scene is replaced: the next call settles a new plan
        context.setattr(reconstruction, "_first_look", interrupted)
        call("--overwrite")
    assert json.loads(PLAN.read_text())["starts_over"]
    call("--minutes", "3")
    assert links.started_at == [0, 0] and steps(CHECKPOINTS / EARLIER) == [10]
    monkeypatch.setattr(reconstruction, "_conclude", lambda *given: None)
    monkeypatch.setattr(functions, "train", lambda *given, **options: 99)
    assert call("--overwrite") == EXIT_DONE and not (CHECKPOINTS / EARLIER).exists()
    save_checkpoint(CHECKPOINTS / EARLIER, make_checkpoint(10))
    settle(settings={"train.end_iter": "99"})
    assert call() == EXIT_DONE and steps(CHECKPOINTS / EARLIER) == [10]
    assert "contains checkpoints of an earlier training; remove them" in capsys.readouterr().out


def test_more_photographs_go_on_from_the_checkpoint_with_the_groups_of_the_others(links, monkeypatch, capsys):
    monkeypatch.setattr(reconstruction, "_conclude", lambda *given: None)
    before = [f"{number}.jpg" for number in range(20)]
    now = [name for name in before if name not in ("3.jpg", "8.jpg")] + [f"more_{number}.jpg" for number in range(9)]
    settings = {"train.end_iter": "900", "dataset.test_every": "8", "dataset.validation_views": "[4, 8]"}
    settle(settings=settings, is_finished=True, photographs=before)
    save_checkpoint(CHECKPOINTS, make_checkpoint(900))
    links.prepare(None, "photos", True)
    named = {f"{view:03d}.png": name for view, name in enumerate(now)}
    (SCENE / "frame.json").write_text(json.dumps({"up_source": "", "photographs": named}))
    words = ["--mode", "reconstruct", "--images", "photos"]
    links.stops_before = 1
    assert exp_runner.main(words) == EXIT_OF_SIGNAL + 15, "before the first checkpoint"
    assert steps() == [] and steps(CHECKPOINTS / EARLIER) == [900]
    links.finishes = 9
    assert exp_runner.main([*words, "--set", "train.end_iter=1201"]) == 2
    assert exp_runner.main([*words, "--set", "train.end_iter=900"]) == EXIT_DONE, "the command as before"
    assert links.beginnings == [CHECKPOINTS / EARLIER / "ckpt_000900.safetensors"] * 2 and links.lengths == [1200, 1200]
    plan = json.loads(PLAN.read_text())
    test = [now.index(name) for name in ("0.jpg", "16.jpg", "more_7.jpg")]
    assert json.loads(plan["settings"]["dataset.test_views"]) == test
    assert json.loads(plan["settings"]["dataset.validation_views"]) == [now.index("4.jpg")]
    assert "dataset.test_every" not in plan["settings"] and plan["photographs"] == now
    assert "27 photographs instead of 20: the training goes on, train.end_iter = 1200" in capsys.readouterr().out


def test_a_plan_sets_its_own_keys_alone_and_of_other_types_it_is_damaged(links, capsys, tmp_path):
    settle(settings={"general.base_exp_dir": str(tmp_path / "elsewhere"), "train.end_iter": "9"})
    assert call() == 2 and "sets general.base_exp_dir, but a plan may set only" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists() and not SCENE.exists()
    for others in ({"minutes": float("nan")}, {"seconds_per_step": "x"}, {"more": 1}):
        settle(**others)
        assert call() == 2 and "reconstruct.json: is damaged; pass --overwrite" in capsys.readouterr().err


def test_an_automatic_training_doubles_its_steps_and_is_continued(links, monkeypatch):
    first = ReconstructionPlan(10.0, {"train.end_iter": "10"}, 1.0, longest=80)
    monkeypatch.setattr(reconstruction_plan, "timed_plan", lambda *given: (first, None))
    monkeypatch.setattr(reconstruction_plan, "score_curve", lambda folder: [[10, 1.0, 20.0], [20, 2.0, 21.0]])
    links.finishes = 2
    for _ in range(2):
        assert call("--minutes", "auto") == EXIT_OF_SIGNAL + 15
    assert links.lengths == [10, 20, 40, 40] and links.started_at == [0, 10, 20, 30]
    assert exp_runner.main(["--mode", "reconstruct", "--images", "photos", "--minutes", "10"]) == 2

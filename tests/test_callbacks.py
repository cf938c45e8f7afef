"""What a callback raises does not end a training, in any method; a second training in the process is refused."""

import threading
from pathlib import Path

import pytest

from data.errors import UserError
from models.commands import interface
from models.runs.stops import Interrupted

METHODS = ("scalars", "picture", "mesh", "after_step", "write")


class Unspoken(Exception):
    """Its text cannot be had."""

    def __str__(self):
        raise ValueError


RAISED = (KeyError("Loss/eikonal"), ValueError("x"), StopIteration(), SystemExit(3), AttributeError("a"))
RAISED += (OSError("o"), Unspoken())
STEPS = 4
TINY = (f"train.end_iter={STEPS}", "train.report_freq=1", "train.val_freq=2", "train.val_mesh_freq=2")
TINY += ("train.mesh_resolution=16", "train.warm_up_end=0", "train.save_freq=100")


def conf_in(folder):
    return interface.read_conf("debug.conf", overrides=[f"general.base_exp_dir={folder}", *TINY])


def failing(errors):
    """A callback whose methods raise in turn, and the calls of each."""

    class Failing(interface.Callback):
        calls = dict.fromkeys(("begin", *METHODS), 0)

    def method(name):
        def call(self, *_arguments):
            self.calls[name] += 1
            raise errors[(self.calls[name] - 1) % len(errors)]

        return call

    for name in ("begin", *METHODS):
        setattr(Failing, name, method(name))
    return Failing()


@pytest.mark.slow
def test_a_training_goes_on_after_any_error_in_any_method_and_says_it_once(tmp_path):
    callback, said = failing(RAISED), []
    with interface.telling(said.append):
        assert interface.train(conf_in(tmp_path), callbacks=[callback]) == STEPS
    assert min(callback.calls.values()) > 0 and callback.calls["after_step"] == STEPS
    assert (tmp_path / f"checkpoints/ckpt_{STEPS:06d}.safetensors").is_file()
    assert "a callback failed" in (tmp_path / "report.html").read_text(encoding="utf-8")
    log = (tmp_path / "logs/train.log").read_text(encoding="utf-8")
    for name in ("begin", *METHODS):
        assert log.count(f".{name} ({Path(__file__).name}:") == 1, name
    assert "the training continues: " in log and "KeyError: Loss/eikonal" in log


@pytest.mark.slow
def test_keyboard_interrupt_in_a_callback_ends_as_ctrl_c_with_a_checkpoint(tmp_path):
    class Stop(interface.Callback):
        def scalars(self, step, seconds, values):
            if step == 2:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="after step 2"):
        interface.train(conf_in(tmp_path), callbacks=[Stop()])
    assert (tmp_path / "checkpoints/ckpt_000002.safetensors").is_file()


@pytest.mark.slow
def test_a_training_within_a_callback_or_beside_another_is_refused(tmp_path):
    class Another(interface.Callback):
        found, work = [], []

        def after_step(self, context):
            def attempt(work):
                try:
                    self.found.append(work())
                except UserError as error:
                    self.found.append(str(error))

            other = conf_in(tmp_path / "other")
            attempt(lambda: interface.train(other))
            for work in (lambda: interface.train(other), lambda: interface.reconstruct(tmp_path)):
                thread = threading.Thread(target=attempt, args=(work,))
                thread.start()
                thread.join()

    callback = Another()
    assert interface.train(conf_in(tmp_path), callbacks=[callback]) == STEPS
    assert len(callback.found) == 3 * STEPS and not (tmp_path / "other").exists()
    assert all(text.startswith("this process trains or computes results already") for text in callback.found)
    with interface.open_model(conf_in(tmp_path)) as model:  # and then it is free again
        assert interface.render(model, 0, level=16).view == 0


def test_a_user_error_in_begin_prevents_the_training(tmp_path):
    with pytest.raises(UserError, match="no"):
        interface.train(conf_in(tmp_path), callbacks=[failing((UserError("no"),))])
    assert not list(tmp_path.iterdir())

"""The composition root, which builds fields, renderer, sampler and trainer of an experiment; and the training loop."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from data.io.bars import Bar
from data.io.lock import TakenError
from data.io.phases import phase
from data.scenes.scene import summary
from models.callback import FINISHED, STOPPED, TRAINING, Callback
from models.checkpoints.same_scene import scene_state
from models.evaluation.collapse import CollapseWatch
from models.evaluation.validation import validate_image
from models.experiment import Experiment, plan_of, record
from models.machine import backend, memory
from models.machine.ranks.ranks import joined
from models.methods.conf import flat, to_hocon
from models.methods.decisions import with_table
from models.methods.device_values import sizes_line
from models.methods.registry import build_model
from models.monitoring.endings import Ending, named_if_the_gpu_fails, saved_at_an_early_end
from models.monitoring.interrupts import DivergedError, Interrupted, Interrupts
from models.monitoring.logger import RunLogger
from models.monitoring.recovery import Recovery
from models.monitoring.saving import Saving
from models.monitoring.setbacks import STOPPED_KEY
from models.monitoring.speed import Speed
from models.plan import PLAN_KEY, as_state
from models.report.training_page import REPORT, TrainingReport
from models.requests import NETWORK, MeshRequest
from models.results.chunks import ResultChunks
from models.results.context import EvalContext
from models.results.meshes import validate_mesh
from models.surface.extraction import EmptySurfaceError
from models.training.chunks import chunk_state, settled_chunk, training_chunk
from models.training.trainer import StepOutput, Trainer, generators


class Runner:
    """One experiment on the device that `backend.select` chose."""

    def __init__(self, experiment: Experiment, log: RunLogger) -> None:
        """Raises UserError if several processes share the training and their inputs differ."""
        ranks, scene = joined(), summary(experiment.scene)
        ranks.agree(scene=scene, device=backend.device_info().name)
        experiment = replace(experiment, conf=ranks.broadcast(experiment.conf))  # with the sizes of a checkpoint
        self.experiment, self.log = experiment, log
        self.conf = experiment.conf.train
        log.info(backend.device_info().line())
        if warning := backend.device_info().warning:
            log.warn(warning)
        if old := ", ".join(f"{key} ({new})" for key, new in experiment.conf.outdated.items()):
            log.warn(f"the conf has keys of the version before, read as those in parentheses: {old}")
        sizes = [line for line in [sizes_line(experiment.conf)] if line]
        for text in (*sizes, scene, *experiment.scene.notes):
            log.info(text)
        initial, pixels, jitter = generators(self.conf.seed)
        plan = ranks.broadcast(plan_of(experiment) if ranks.is_writer else None)
        model = build_model(experiment.conf.model, self.conf, initial, plan)
        sampler = model.sampler(experiment.scene, self.conf.batch_size, pixels)
        if ranks.is_writer and experiment.checkpoint is None:
            model.begin()
        shared = {id(sampler): sampler, id(plan): plan}
        averaged = copy.deepcopy(model, shared) if self.conf.ema_decay > 0 else None
        if not plan.rows:
            plan = with_table(plan, experiment.conf.model, self.conf, model.loss_weights, flat(experiment.conf))
        self.experiment = experiment = replace(experiment, plan=plan)
        self.trainer = Trainer(model, sampler, self.conf, jitter, averaged, ranks)
        self.recovery = Recovery(experiment.conf, experiment.store, self.trainer, log)
        self.collapse = CollapseWatch(experiment, self.trainer, self.recovery, log)
        self._failure = ""  # why the result of the finished training is unusable
        self.saving = Saving(experiment.store, self.trainer, self.recovery, log, self._state)
        self._chunks = ResultChunks(self.conf)
        self._seconds_before = 0.0
        self._started: float | None = None
        self._taken = 0  # steps of this session, including skipped ones
        self._followers: tuple[Callback, ...] = ()
        if experiment.checkpoint is not None:
            self.trainer.restore(experiment.checkpoint)
            self._seconds_before = float(experiment.checkpoint.state.get("seconds", 0.0))
            log.info(f"resuming from the checkpoint of step {self.step}")
            self.recovery.resume(experiment.checkpoint.state)

    @property
    def step(self) -> int:
        """Finished optimiser steps."""
        return self.trainer.finished_steps

    def snapshot(self) -> EvalContext:
        """The current model, for results."""
        return EvalContext(
            experiment=self.experiment,
            model=self.trainer.result_model,
            step=self.step,
            seconds=self._seconds(),
            background_rgb=self.conf.background_rgb,
            log=self.log,
            chunks=self._chunks,
        )

    def train(self, language: str | None = None, *followers: Callback) -> None:
        """Train to `end_iter`; write checkpoints, images, meshes and scalars at their frequencies.

        `language` of the report: None for that of the browser. Raises Interrupted, with everything saved, after the
        first SIGINT, SIGTERM or SIGHUP; DivergedError if values do not remain finite; GpuFailedError.
        """
        record(self.experiment)
        if self.step >= self.conf.end_iter:
            self.log.info(f"already trained to step {self.step}; increase train.end_iter to continue")
            self._failure = self.experiment.checkpoint.state.get(STOPPED_KEY, "")
        else:
            self._begin(language, followers)
            with phase("training"), self._session() as (interrupts, bar):
                while self.step < self.conf.end_iter and interrupts.received is None:
                    output = self.trainer.step()
                    self._taken += 1
                    self._after_step(output, bar)
            self.log.info(f"trained to step {self.step} in {self._seconds():.0f} s")
        if self._failure:
            self.log.keep(self._failure)
            raise DivergedError(f"{self._failure}: --mode inspect checks photographs and cameras")

    @contextmanager
    def _session(self) -> Iterator[tuple[Interrupts, Bar]]:
        """The context of the steps: signals, the progress bar, and saving and reporting at any end."""
        ending = Ending(lambda: self.step, lambda: self.saving.at_an_early_end(self._taken))
        with named_if_the_gpu_fails(self.recovery.kept), self._told_how_it_ends(), self._saved_where_it_diverges():
            progress = self.log.progress(self.conf.end_iter, initial=self.step, unit="step")
            with Interrupts() as interrupts, progress as bar:
                stops = joined().until(lambda: interrupts.received is not None)
                with stops, saved_at_an_early_end(interrupts, ending):
                    yield interrupts, bar
                self.trainer.settle()
                if interrupts.received is None:
                    self.recovery.after_step()
                if self.recovery.has_learnt(self._taken):
                    self.saving.save(self._failure)
            if interrupts.received is not None and self.step < self.conf.end_iter:
                stop = Interrupted(interrupts.received, self.step)
                self.log.note(str(stop))  # mpirun prints nothing after it was stopped
                raise stop

    def _begin(self, language: str | None, followers: Sequence[Callback]) -> None:
        """Print the plan, start the clock, choose the chunk size, and start the callbacks."""
        self.log.info(*self.experiment.plan.lines())
        self.log.info(
            "Jittor compiles each kernel at its first use, once per machine; later runs start without compiling"
        )
        self._started = time.perf_counter()
        self._choose_chunk()
        self.recovery.begin()
        has_surface = self.trainer.model.level_set is not None
        report = TrainingReport(self.experiment, self.log, language, self.step, has_surface)
        self._followers = (report, *followers)
        self._speed = Speed()

    @contextmanager
    def _told_how_it_ends(self) -> Iterator[None]:
        """Notify the callbacks when the training ends for any reason, unless another run holds the folder."""
        state: str | None = STOPPED
        try:
            yield
            state = FINISHED
        except TakenError:
            state = None
            raise
        finally:
            if self._taken and state is not None:
                self._tell(lambda follower: follower.write(self.step, self._seconds(), state))

    @contextmanager
    def _saved_where_it_diverges(self) -> Iterator[None]:
        """If the training diverges, save its last finite state and report it in DivergedError."""
        try:
            yield
        except DivergedError as error:
            text = self.saving.after_divergence(str(error), self._taken, self.experiment.folder / REPORT)
            self.log.keep(f"the training stopped at step {self.step} of {self.conf.end_iter}: {text}")
            raise DivergedError(text) from error

    def _tell(self, what: Callable[[Callback], None]) -> None:
        """Call all callbacks. An error of a callback is reported once and does not stop the training."""
        for follower in self._followers:
            self.recovery.attempt(follower.name, partial(what, follower))

    def _after_step(self, output: StepOutput, bar: Bar) -> None:
        """Actions due after a step, including a skipped one."""
        self._require_folder()
        is_last = self.step >= self.conf.end_iter
        if is_last:
            self.trainer.settle()  # a skipped step may restore an earlier state; then it is not the last step
        self.recovery.after_step(self._taken if is_last else None)
        if self.step >= self.conf.end_iter:
            self._failure = self.collapse.at_end(self.snapshot())
        bar.update(self.step - bar.n)
        self._speed.count(output.entries)
        if self._due(self.conf.report_freq):
            scalars = output.scalars()  # waits for this step; otherwise the loop waits only for the previous one
            bar.set_postfix_str(self._report(scalars, self._speed.since_last()))
        self._write_due_results()
        self._tell(lambda follower: follower.after_step(self.snapshot))

    def _require_folder(self) -> None:
        """Recreate the folder if it was deleted; raises UserError if another run has it."""
        self.experiment.traces.keep()
        if not self.experiment.lock.confirm():
            self.log.close()  # the event file was deleted too; the next scalars open another one
            folder = self.experiment.folder
            self.log.warn(f"the folder {folder} or its lock was deleted during training; it is created again")

    def _choose_chunk(self) -> None:
        checkpoint = self.experiment.checkpoint
        chunk = settled_chunk(self.conf, checkpoint.state if checkpoint else {}, self.trainer.parts)
        if chunk is None:
            choice = training_chunk(self.trainer)
            chunk = choice.chunk
            if not choice.fits:
                keys = self.experiment.conf.model.memory_keys
                self.log.warn(
                    f"train.ray_chunk = 1 exceeds train.memory_limit = {self.conf.memory_limit}: increase "
                    "train.memory_limit" + (f", or lower {keys}" if keys else "")
                )
        self.trainer.ray_chunk = chunk
        if chunk < self.conf.batch_size:
            self.log.info(
                f"steps of {self.conf.batch_size} {self.trainer.model.entries}, {chunk} at a time (train.ray_chunk)"
            )

    def _due(self, frequency: int) -> bool:
        """Whether what is done every `frequency` steps, and after the last one, is due now; 0 means never."""
        return frequency > 0 and (self.step % frequency == 0 or self.step >= self.conf.end_iter)

    def _report(self, scalars: dict[str, float], speed: float) -> str:
        """Log the scalars; returns the text of the progress bar."""
        rate = self.trainer.learning_rate
        self.recovery.note_psnr(scalars["Statistics/psnr"])
        scalars = scalars | {"Statistics/learning_rate": rate}
        self.log.scalars(self.step, scalars)
        values = scalars | {"speed": speed}
        self._tell(lambda follower: follower.scalars(self.step, self._seconds(), values))
        text = (
            f"loss {scalars['Loss/loss']:.4f}, PSNR {scalars['Statistics/psnr']:.2f}, "
            f"{self.trainer.model.progress_text(scalars)}, {speed:.0f} {self.trainer.model.entries}/s"
        )
        self.log.note(f"step {self.step}: {text}, learning rate {rate:.3g}")
        return text

    def _write_due_results(self) -> None:
        """Write checkpoint, image and mesh if they are due after this step."""
        if self._due(self.conf.save_freq) and self.step < self.conf.end_iter:
            self.collapse.at_checkpoint(self.snapshot())
            self.saving.save_progress(self.conf.save_freq)
        has_picture = self._due(self.conf.val_freq)
        has_mesh = self._due(self.conf.val_mesh_freq) and self.trainer.model.level_set is not None
        if has_picture or has_mesh:
            memory.release()  # images and steps need memory blocks of different sizes, so free them in between
        if has_picture:
            self.recovery.examine()
            shown, level = self.collapse.views, self.conf.validate_resolution_level
            seen = partial(validate_image, view=shown.views[0], level=level, held_out=shown.held_out)
            picture = self.recovery.attempt("images", lambda: seen(self.snapshot()))
            if picture is not None:
                self._tell(lambda follower: follower.picture(self.step, picture))
        if has_mesh:
            try:
                request = MeshRequest(self.conf.mesh_resolution, color=NETWORK)
                mesh = self.recovery.attempt("meshes", lambda: validate_mesh(self.snapshot(), request))
                if mesh is not None:
                    self._tell(lambda follower: follower.mesh(self.step, mesh))
            except EmptySurfaceError as error:
                self.log.warn(f"step {self.step}: no mesh yet: {error}")
        if has_picture or has_mesh:
            memory.release()
        if (has_picture or has_mesh or self._due(self.conf.report_freq)) and self.step < self.conf.end_iter:
            self._tell(lambda follower: follower.write(self.step, self._seconds(), TRAINING))

    def _seconds(self) -> float:
        """Training time so far, over all sessions."""
        now = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._seconds_before + now

    @cached_property
    def _scene_state(self) -> dict[str, Any]:
        """The entries on the scene, which does not change."""
        return scene_state(self.experiment.scene)

    def _state(self) -> dict[str, Any]:
        """The entries of a checkpoint's state besides those of the trainer."""
        state = {"conf": to_hocon(self.experiment.conf), "seconds": self._seconds()} | self.collapse.state()
        state |= chunk_state(self.conf, self.trainer.ray_chunk, self.trainer.parts)
        state[PLAN_KEY] = as_state(self.experiment.plan)
        return state | self._scene_state

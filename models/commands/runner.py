"""The composition root, which builds fields, renderer, sampler and trainer of an experiment; and the training loop."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from data.io.bars import Bar
from data.io.clock import phase, seconds_left
from data.io.lock import TakenError
from data.prepare.inspection.checks import bad_geometry
from data.scenes.scene_checks import summary
from models.checkpoints.scenes import scene_state
from models.conf import flat, to_hocon
from models.machine import backend, memory
from models.machine.ranks import joined
from models.mesh.extraction import EmptySurfaceError
from models.methods.registry import build_model
from models.plan import LEAST_STEPS, PLAN_KEY
from models.requests import NETWORK, MeshRequest
from models.results.callback import FINISHED, STOPPED, TRAINING, Callback, Callbacks
from models.results.context import EvalContext, ResultChunks, log_inputs, with_table
from models.results.experiment import Experiment, plan_of
from models.results.image_metrics import ScoredViews, scored_views, validate_image
from models.results.meshes import validate_mesh
from models.results.report.training_page import REPORT, TrainingReport
from models.runs.health import Health
from models.runs.logger import RunLogger, Speed
from models.runs.measured import chosen_chunk, chunk_state
from models.runs.run_files import record
from models.runs.saved_training import SavedTraining, SharedTrainer
from models.runs.stops import Interrupted, Interrupts
from models.training.checkpoint import DivergedError
from models.training.gradient import BatchGradient
from models.training.trainer import Trainer, generators

FIRST_STEPS = 5  # of a session: Jittor compiles kernels in them


class Runner:
    """One experiment on the device that `backend.select` chose."""

    def __init__(self, experiment: Experiment, log: RunLogger) -> None:
        """Raises UserError if several processes share the training and their inputs differ."""
        ranks = joined()
        ranks.agree(scene=summary(experiment.scene), device=backend.device_info().name)
        experiment = replace(experiment, conf=ranks.broadcast(experiment.conf))  # with the sizes of a checkpoint
        self.log, self.conf = log, experiment.conf.train
        log_inputs(experiment, log)
        for finding in bad_geometry(experiment.scene) if experiment.checkpoint is None else ():
            log.warn(finding.line)
        initial, pixels, jitter = generators(self.conf.seed)
        plan = ranks.broadcast(plan_of(experiment) if ranks.is_writer else None)
        model = build_model(experiment.conf.model, self.conf, initial, plan)
        sampler = model.sampler(experiment.scene, self.conf.batch_size, pixels)
        if ranks.is_writer and experiment.checkpoint is None:
            model.begin()
        averaged = copy.deepcopy(model, {id(sampler): sampler, id(plan): plan}) if self.conf.ema_decay > 0 else None
        plan = with_table(plan, experiment.conf.model, self.conf, model.weights, flat(experiment.conf))
        self.experiment = experiment = replace(experiment, plan=plan)
        parts = model, sampler, self.conf, jitter, averaged
        self.trainer = Trainer(*parts) if ranks.size == 1 else SharedTrainer(ranks, *parts)
        self._failure = ""  # why the result of the finished training is unusable
        self._health = Health()
        self._chunks = ResultChunks(self.conf)
        self._seconds_before = 0.0
        self._started: float | None = None
        self._interrupts = Interrupts()
        self._callbacks = Callbacks((), log.warn)
        if experiment.checkpoint is not None:
            self.trainer.restore(experiment.checkpoint)
            self._seconds_before = float(experiment.checkpoint.state.get("seconds", 0.0))
            log.info(f"resuming from the checkpoint of step {self.step}")
        store: Any = experiment.store  # None where nothing is saved, and so not used
        self.watch = SavedTraining(self.trainer, store, log, self._state, experiment.checkpoint)

    @property
    def step(self) -> int:
        """Finished optimiser steps."""
        return self.trainer.finished_steps

    @cached_property
    def scored(self) -> ScoredViews:
        """The views with which the training is scored, loaded at the first use."""
        return scored_views(self.experiment)

    def snapshot(self) -> EvalContext:
        """The current model, for results."""
        return EvalContext(
            experiment=self.experiment,
            model=self.trainer.result_model,
            step=self.step,
            seconds=self._seconds(),
            log=self.log,
            chunks=self._chunks,
        )

    def train(self, language: str | None = None, *followers: Callback) -> None:
        """Train to `end_iter`; write checkpoints, images, meshes and scalars at their frequencies.

        `language` of the report: None for that of the browser. Raises Interrupted, with everything saved, after the
        first SIGINT, SIGTERM or SIGHUP; DivergedError if values do not remain finite; GpuFailedError.
        """
        if isinstance(self.trainer, SharedTrainer) and not joined().is_writer:
            self.trainer.follow()
            return
        record(self.experiment.folder, self.experiment.conf)
        if self.step >= self.conf.end_iter:
            self.log.info(f"already trained to step {self.step}; increase train.end_iter to continue")
            self._failure = self.watch.stopped
        else:
            self._begin(language, followers)
            with phase("training"):
                self._session()
            self.log.info(f"trained to step {self.step} in {self._seconds():.0f} s")
        if self._failure:
            self.log.keep(self._failure)
            raise DivergedError(f"{self._failure}: --mode inspect checks photographs and cameras")
        joined().broadcast(None)  # the others follow no longer

    def _session(self) -> None:
        """Take the steps; at any end, save what was trained and notify the callbacks."""
        end: str | None = STOPPED
        bar = self.log.progress(self.conf.end_iter, initial=self.step, unit="step")
        try:
            with self._interrupts as interrupts, bar:
                self._steps(interrupts, bar)
                if self.trainer.guard.has_taken:
                    self.watch.save(self._failure)
            if interrupts.received is not None and self.step < self.conf.end_iter:
                stop = Interrupted(interrupts.received, self.step)
                self.log.note(str(stop))  # mpirun prints nothing after it was stopped
                raise stop
            end = FINISHED
        except TakenError:  # the folder is that of another run
            end = None
            raise
        except (DivergedError, MemoryError, RuntimeError) as error:
            if explained := self.watch.ended_by(error, self.experiment.folder / REPORT):
                raise explained from error
            raise
        finally:
            if end is not None and self.trainer.guard.steps:
                self._callbacks.notify(self.step, "write", self.step, self._seconds(), end)

    def _steps(self, interrupts: Interrupts, bar: Bar) -> None:
        """Take the remaining steps, until a signal arrives."""
        with joined().until(lambda: interrupts.received is not None), interrupts.ignoring_killed_compiler():
            while self.step < self.conf.end_iter and interrupts.received is None:
                if self.step + 1 >= LEAST_STEPS and seconds_left() <= 0:
                    last, self.conf = self.conf.end_iter, replace(self.conf, end_iter=self.step + 1)
                    self.log.info(f"the time is over: the training ends with step {self.conf.end_iter} of {last}")
                self._after_step(self.trainer.step(), bar)
        self.trainer.finish_step()
        if interrupts.received is None:
            self.watch.after_step()

    def _begin(self, language: str | None, followers: Sequence[Callback]) -> None:
        """Print the plan, start the clock, choose the chunk size, and start the callbacks."""
        note = "Jittor compiles each kernel at its first use, once per machine; later runs start without compiling"
        self.log.info(*self.experiment.plan.lines(), note)
        self._started = time.perf_counter()
        self._choose_chunk()
        self.watch.begin()
        has_surface = self.trainer.model.level_set is not None
        report = TrainingReport(self.experiment, self.log, language, self.step, has_surface)
        self._callbacks = Callbacks((report, *followers), self.log.warn, self._interrupts.request)
        self._speed = Speed()

    def _after_step(self, output: BatchGradient, bar: Bar) -> None:
        """Actions due after a step, including a skipped one."""
        if not self.experiment.ensure_folder():
            self.log.close()  # the event file was deleted too; the next scalars open another one
            folder = self.experiment.folder
            self.log.warn(f"the folder {folder} or its lock was deleted during training; it is created again")
        if is_last := self.step >= self.conf.end_iter:
            self.trainer.finish_step()  # a skipped step may restore an earlier state; then it is not the last step
        self.watch.after_step(is_last)
        if self.step >= self.conf.end_iter:
            self._score()
        bar.update(self.step - bar.n)
        self._speed.count(output.entries)
        if self._due(self.conf.report_freq):
            scalars = self.trainer.scalars(output)  # waits for this step; otherwise the loop waits for the last one
            bar.set_postfix_str(self._report(scalars, output.weighted(scalars), self._speed.since_last()))
        if self._write_due_results() or self.trainer.guard.steps <= FIRST_STEPS:
            bar.leave_out()
        self._callbacks.notify(self.step, "after_step", self.snapshot)

    def _choose_chunk(self) -> None:
        checkpoint, entries = self.experiment.checkpoint, self.trainer.model.entries
        choice = chosen_chunk(self.trainer, checkpoint.state if checkpoint else {})
        if not choice.fits:
            keys = ", ".join(f"model.{key}" for key in self.experiment.conf.model.sizes)
            self.log.warn(
                f"train.ray_chunk = 1 exceeds train.memory_limit = {self.conf.memory_limit}: increase "
                f"train.memory_limit, or lower {keys or 'train.batch_size'}"
            )
        self.trainer.ray_chunk = choice.chunk
        if choice.chunk < self.conf.batch_size:
            self.log.info(f"steps of {self.conf.batch_size} {entries}, {choice.chunk} at a time (train.ray_chunk)")

    def _due(self, frequency: int) -> bool:
        """Whether what is done every `frequency` steps, and after the last one, is due now; 0 means never."""
        return frequency > 0 and (self.step % frequency == 0 or self.step >= self.conf.end_iter)

    def _report(self, scalars: dict[str, float], weighted: dict[str, float], speed: float) -> str:
        """Log the scalars, to callbacks with the weights of the losses; returns the text of the progress bar."""
        rate = self.trainer.learning_rate
        self._health.psnrs.append(scalars["Statistics/psnr"])
        self.log.scalars(self.step, scalars | {"Statistics/learning_rate": rate})
        values = weighted | {"Statistics/learning_rate": rate, "speed": speed}
        self._callbacks.notify(self.step, "scalars", self.step, self._seconds(), values)
        text = (
            f"loss {scalars['Loss/loss']:.4f}, batch PSNR {scalars['Statistics/psnr']:.2f}, "
            f"{self.trainer.model.progress_text(scalars)}, {speed:.0f} {self.trainer.model.entries}/s"
        )
        self.log.note(f"step {self.step}: {text}, learning rate {rate:.3g}")
        return text

    def _write_due_results(self) -> bool:
        """Write checkpoint, image and mesh if they are due after this step; returns whether any is."""
        if self._due(self.conf.save_freq) and self.step < self.conf.end_iter:
            self._score()
            self.watch.save_progress(self.conf.save_freq)
        has_picture = self._due(self.conf.val_freq)
        has_mesh = self._due(self.conf.val_mesh_freq) and self.trainer.model.level_set is not None
        if has_picture or has_mesh:
            memory.release()  # images and steps need memory blocks of different sizes, so free them in between
        if has_picture:
            model = self.trainer.model
            for problem in self._health.examine(self.step, model.sharpness(), model.level_set):
                self.log.warn(problem)
            scored, level = self.scored, self.conf.validate_resolution_level
            seen = partial(validate_image, view=scored.views[0], level=level, validation=scored.validation)
            picture = self.log.unless_it_fails(self.step, "images", lambda: seen(self.snapshot()))
            if picture is not None:
                self._callbacks.notify(self.step, "picture", self.step, picture)
        if has_mesh:
            try:
                request = MeshRequest(self.conf.mesh_resolution, color=NETWORK)
                mesh = self.log.unless_it_fails(self.step, "meshes", lambda: validate_mesh(self.snapshot(), request))
                if mesh is not None:
                    self._callbacks.notify(self.step, "mesh", self.step, mesh)
            except EmptySurfaceError as error:
                self.log.warn(f"step {self.step}: no mesh yet: {error}")
        if has_picture or has_mesh:
            memory.release()
        if (has_picture or has_mesh or self._due(self.conf.report_freq)) and self.step < self.conf.end_iter:
            self._callbacks.notify(self.step, "write", self.step, self._seconds(), TRAINING)
        return has_picture or has_mesh or self._due(self.conf.save_freq)

    def _score(self) -> None:
        """Score the present state; the training may return to its best one, or end with it."""
        context = self.snapshot()
        score = self.scored.measured(context)
        if score is None:
            return
        is_last = self.step >= self.conf.end_iter
        score = self.watch.after_score(context.seconds, score, self.scored.group, self.scored.text(), is_last)
        if self.step >= self.conf.end_iter:
            self._failure = self.scored.failure(self.snapshot(), score)

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
        state = {"conf": to_hocon(self.experiment.conf), PLAN_KEY: self.experiment.plan.state()}
        state |= chunk_state(self.conf, self.trainer.ray_chunk, self.trainer.parts) | {"seconds": self._seconds()}
        return state | self._scene_state

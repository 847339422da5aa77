"""A run from beginning to end: it is built, trains epoch by epoch, and is evaluated after each epoch.

    train --> lay_out --> resume --> equip --> TrainingLoop.train --> epoch --> train_step
                                                |                      +---> report
                                                |                      +---> reached: save, stop
                                                +--> evaluate

`train_step` computes one step. Each other part of the loop has a package of its own: batches (`data`), the model on
its devices (`model`), decisions of all ranks together (`group`), saves (`checkpoint`) and reports (`recording`).

A run is built in three stages, each from the result of the previous stage. The order of the stages must not change,
because each may draw random numbers, and every start of a run must draw the same numbers.
"""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from ddpjob.checkpoint.encoding import StateDict
from ddpjob.checkpoint.finite import finite_parameters
from ddpjob.random_state import seed_all
from ddpjob.training.saver import Saved, TrainingSaver, Where
from ddpjob_rank.console import say
from ddpjob_rank.errors import DivergedError
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting.agreement import Agreement, Wish
from ddpjob_rank.reporting.group_agreement import agreement_of_group
from ddpjob_rank.reporting.save_request import on_save_request
from ddpjob_rank.stopping import StoppedOnRequest, StopRequest
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.utils.data import Dataset

from .checkpoint import saving, state
from .config import TrainConfig
from .data.batches import Batches, shares_of
from .data.data_identity import UNKNOWN
from .data.feed import Feed
from .data.feeding import feeding, loader, total_steps
from .data.loader import Loader
from .group.joining import process_group, store_of_mpi
from .model import amp, exactness, modes
from .model.buffers import without_trace
from .model.compression import PowerSGD
from .model.divergence import StepOutcome, Watch
from .model.evaluation import IncompleteError, evaluate
from .model.learner import Learner, build_learner, check_optimizer
from .model.parallel import prepare_model, warm_up, wrap
from .recording.position import Position
from .recording.progress_lines import ProgressLines
from .recording.recorder import Recorder
from .recording.reporter import Evaluation, Reporter
from .recording.run_facts import facts
from .recording.step_times import StepTimes
from .task import Task, load_task


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What is trained, in which process, and on which device."""

    config: TrainConfig
    world: World
    position: Position
    stop: StopRequest
    task: Task
    device: torch.device


def train(config: TrainConfig, world: World, position: Position, stop: StopRequest) -> None:
    """Trains from the newest checkpoint, or from the beginning. `position` is kept up to date, even on failure."""
    reporting.announces_activities()
    _set_threads(config, world)
    exactness.prepare(config.computing)
    seed_all(config.seed)
    position.activity = "loading the data"
    task = load_task(config)
    feed_on = feeding(config, task, world)
    position.activity = "joining the process group"
    with process_group(world, config) as device:
        position.activity = "starting"
        reporting.reports_steps()  # From here on, ranks wait for each other.
        device = modes.device_of_model(config.mode, device)  # noqa: PLW2901  (data-parallel may choose another GPU)
        exactness.log_settings(device, leads=world.leads)
        run = Run(config=config, world=world, position=position, stop=stop, task=task, device=device)
        loop = equip(resume(lay_out(run, feed_on)))
        stop.loop_begins(partial(loop.agreement.wish, Wish.STOP))
        loop.train()


def _set_threads(config: TrainConfig, world: World) -> None:
    """Sets torch's number of threads: `--threads`, else OMP_NUM_THREADS, else this process's share of the cores."""
    if config.threads or "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(config.threads or max(1, torch.get_num_threads() // world.local_world_size))


@dataclass(frozen=True, kw_only=True, slots=True)
class LaidOut:
    """The first stage: data and model as they are before the first step. No checkpoint is loaded yet."""

    run: Run
    feed: Feed
    test_data: Dataset[Any] | None
    model: nn.Module
    wrapped: nn.Module
    compression: PowerSGD | None


def lay_out(run: Run, feed_on: Callable[[torch.device], Feed]) -> LaidOut:
    """Puts the model on its device, and wraps it in DistributedDataParallel if there are other processes."""
    config, world, task, device = run.config, run.world, run.task, run.device
    feed, test_data = feed_on(modes.output_device(config.mode, device)), task.test_data()
    model = prepare_model(task.model(), config, world, device)
    wrapped, compression = wrap(model, config, world, device)
    seed_all(config.seed, world.rank, 0)
    if not world.alone:
        warm_up(wrapped, task, iter([feed.first()]), amp.autocast(config.computing.precision, device))
    return LaidOut(run=run, feed=feed, test_data=test_data, model=model, wrapped=wrapped, compression=compression)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumedRun:
    """The second stage: where the run goes on and where it ends. The saved state is not restored yet."""

    laid_out: LaidOut
    recorder: Recorder
    agreement: Agreement
    saver: TrainingSaver
    saved: Saved | None
    """The newest checkpoint; None if the run starts from the beginning."""
    epochs: int | None
    """The number of epochs; None if only the number of steps is limited."""
    total_steps: int


def resume(laid_out: LaidOut) -> ResumedRun:
    """Sets the position to that of the newest checkpoint, if there is one."""
    run, feed = laid_out.run, laid_out.feed
    config, world, position = run.config, run.world, run.position
    recorder = Recorder(config.recording.directory if world.leads else None, config.attempt)
    watched = world.leads and config.optimisation.on_divergence != "ignore"
    sound = finite_parameters(laid_out.model) if watched else frozenset()
    agreement = agreement_of_group("training", "train_step()", store_of_mpi(world))
    data = feed.data() if config.checkpoint and world.leads else UNKNOWN
    saver = saving.open_saver(
        config,
        world,
        agreement,
        global_batch=feed.global_batch,
        position=position,
        recorder=recorder,
        data=data,
        sound=sound,
    )
    if saved := saver.find():
        position.step, position.epoch, position.samples = saved.state["position"]
    epochs = config.epochs or (None if feed.left() is None else run.task.epochs)
    return ResumedRun(
        laid_out=laid_out,
        recorder=recorder,
        agreement=agreement,
        saver=saver,
        saved=saved,
        epochs=epochs,
        total_steps=total_steps(position, feed, epochs, config.max_steps),
    )


def equip(resumed: ResumedRun) -> "TrainingLoop":
    """The third stage: builds the optimizer and all that each step uses, and restores the saved state."""
    laid_out, steps, saver, agreement = resumed.laid_out, resumed.total_steps, resumed.saver, resumed.agreement
    run, feed, wrapped = laid_out.run, laid_out.feed, laid_out.wrapped
    config, world, position, task, device = run.config, run.world, run.position, run.task, run.device
    task.steps_per_epoch = feed.left() or steps
    learner = build_learner(
        config, task, laid_out.model, wrapped, compression=laid_out.compression, total_steps=steps, device=device
    )
    check_optimizer(learner.optimizer, laid_out.model, aloud=world.leads)
    parts = config.optimisation.gradient_accumulation_steps
    shares = shares_of(feed.batch_size, parts)
    if resumed.saved:
        saving.restore(learner, resumed.saved, saver, config.seed, device)
    if saver.saves:
        state.shared(learner)  # If the state cannot be saved, this fails now, not at the first save.
        on_save_request(partial(agreement.wish, Wish.SAVE))
    resumed.recorder.begin(position.step, facts(config, world, device, total_steps=steps, epochs=resumed.epochs))
    if world.leads and position.step >= steps:
        say(f"complete: all {steps} steps have been trained before")
    times = StepTimes(wrapped, device, parts)
    # If several ranks of a node write to one log, their lines name the rank.
    rank = world.rank if world.local_world_size > 1 else None
    progress = ProgressLines(
        position, resumed.epochs, steps, batch_size=feed.batch_size, log_every=config.log_every, rank=rank
    )
    held_out = laid_out.test_data
    return TrainingLoop(
        run=run,
        position=position,
        learner=learner,
        feed=feed,
        shares=shares,
        test_data=None if held_out is None else loader(held_out, config, task, world, device),
        epochs=resumed.epochs,
        total_steps=steps,
        saver=saver,
        agreement=agreement,
        times=times,
        watch=Watch(config.optimisation.on_divergence, world, scaled=learner.scaler is not None),
        reporter=Reporter(
            position, progress, resumed.recorder, times, agreement, world, learner.optimizer, feed.global_batch
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingLoop:
    """All parts of a run, ready to train."""

    run: Run
    position: Position
    learner: Learner
    feed: Feed
    shares: tuple[float, ...]
    """For each batch of a step, the fraction of the step's samples that it contains."""
    test_data: Loader | None
    epochs: int | None
    total_steps: int
    saver: TrainingSaver
    agreement: Agreement
    times: StepTimes
    watch: Watch
    reporter: Reporter

    def train(self) -> None:
        """Trains from the position to the end of the last epoch.

        Raises:
            StoppedOnRequest: A rank was told to stop; all ranks have finished the same step, and it is saved.
        """
        try:
            self._train()
        except Exception as error:
            self.reporter.ended(error)
            self.saver.finish_after(error)
            raise
        finally:
            self.reporter.close()

    def _train(self) -> None:
        self.reporter.began()
        while True:
            if not self.complete:
                self.epoch()
            self.watch.look(own=self.position.step)
            result = self.evaluate()
            if (broken := self.run.task.broken_samples(self.run.world)) is not None:
                self.reporter.skipped(broken)
            if self.complete or self.position.epoch == self.epochs:
                break
            self.position.next_epoch()
        self.save_last()
        self.watch.look(own=self.position.step, everybodys=self.position.step)
        self.reporter.finished(result)

    @property
    def complete(self) -> bool:
        """Whether all steps are trained."""
        return self.position.step >= self.total_steps

    def epoch(self) -> None:
        """Trains the rest of the epoch, or of the run if the run ends earlier."""
        before = self.position.step
        clip_grad_norm = self.run.config.optimisation.clip_grad_norm
        self.learner.wrapped.train()
        with self.reporter.training():
            for step in self.feed.steps(self.position.epoch, self.position.samples, self.total_steps - before):
                outcome = train_step(
                    self.run.task,
                    self.learner,
                    step.batches,
                    weight=step.weight,
                    shares=self.shares,
                    clip_grad_norm=clip_grad_norm,
                    times=self.times,
                )
                self.position.advance(self.feed.global_batch)
                self.watch.add(self.position.step, step.samples, outcome)
                self.reporter.step(outcome.loss)
                self.watch.look_back(self.position.step)
                self.reached(epoch_ends=self.feed.left(self.position.samples) == 0)
                self.times.start()
            if self.feed.left() is None and before < self.position.step < self.total_steps:
                self.reached(epoch_ends=True, again=True)  # Only now is it known that the epoch has ended.

    def reached(self, *, epoch_ends: bool, again: bool = False) -> None:
        """Saves if a save is due after this step, and stops if any rank was told to stop.

        All ranks call this after the same steps. `again` is true in a second call after the same step.

        Raises:
            StoppedOnRequest: All ranks stop, and this step is saved.
        """
        step = self.position.step
        if again and self.saver.saved_position == 2 * step:
            return
        last = step == self.total_steps or (epoch_ends and self.position.epoch == self.epochs)
        try:
            decision = self.saver.reached(
                2 * step + again, self._where(), self._shared, self._own, ends=epoch_ends, last=last
            )
        except DivergedError:
            # Each rank checked its own losses before the save that failed, so the gradients up to that step can be
            # checked. A message about gradients says more than one about parameters.
            self.watch.look(own=step, everybodys=self.saver.begun_step)
            raise
        if decision is Wish.STOP:
            raise StoppedOnRequest(self._last_words())

    def save_last(self) -> None:
        """Saves this step, unless it is saved already, and waits until it is durable."""
        self.saver.finish_last(self._where(), self._shared, self._own)

    def _where(self) -> Where:
        return Where(self.position.step, self.position.epoch, self.position.samples)

    def _shared(self) -> StateDict:
        return state.shared(self.learner)

    def _own(self) -> StateDict:
        self.watch.look(own=self.position.step)
        return state.of_rank(self.learner)

    def _last_words(self) -> str:
        if not self.saver.saves:
            return f"stopped on request after step {self.position.step}; without --checkpoint-dir nothing is saved"
        return f"saved step {self.position.step}, stopped on request"

    def evaluate(self) -> Evaluation | None:
        """Evaluates on the held-out set; only rank 0 gets the result.

        Raises:
            StoppedOnRequest: A rank was told to stop, and all trained steps are saved.
        """
        if self.test_data is None:
            return None
        self.reporter.begin("evaluation")
        # A batch is as large as in training, where a step may consist of several batches.
        size = math.ceil(self.feed.batch_size / len(self.shares))
        learner = self.learner
        try:
            result = evaluate(
                learner.evaluated,
                self.run.task,
                self.test_data,
                autocast=learner.autocast,
                world=self.run.world,
                batch_size=size,
                goes_on=self._goes_on,
            )
        except IncompleteError:  # The evaluation is repeated when the run is resumed.
            self.save_last()
            raise StoppedOnRequest(self._last_words()) from None
        if result:
            self.reporter.evaluated(result)
        return result

    def _goes_on(self) -> bool:
        """Whether this rank evaluates one more batch. Also reports the evaluation, and a save that is now durable."""
        self.reporter.begin("evaluation")
        self.saver.settle()
        return not self.run.stop.made


def train_step(
    task: Task,
    learner: Learner,
    batches: Batches,
    *,
    weight: float = 1.0,
    shares: Sequence[float] = (1.0,),
    clip_grad_norm: float | None = None,
    times: StepTimes | None = None,
) -> StepOutcome:
    """Trains by one step.

    Args:
        task: What is trained.
        learner: The model, its optimizer, and all else that a step changes.
        batches: At least as many batches as there are shares.
        weight: The factor of this process's loss. With it, the average of all processes' gradients is the gradient of
            the whole step. With 0, the batches of this process change neither buffers nor gradients.
        shares: For each batch of the step, the fraction of the step's samples that it contains.
        clip_grad_norm: The upper bound of the norm of all gradients together; None if there is no bound.
        times: Measures how long each part of the step takes.
    """
    lap = times.lap if times else _nothing
    scaler = learner.scaler

    def forward_backward(share: float) -> Tensor:
        """Adds the gradients of the next batch, and returns the batch's part of the mean loss."""
        inputs, target = next(batches)
        lap("data")
        with learner.autocast():
            loss = task.loss(learner.output(inputs), target)
        lap("forward")
        factor = weight * share
        # If all parts are equal, the loss is not multiplied, so that it stays exactly the same number.
        weighted = loss if factor == 1.0 else loss * factor
        torch.autograd.backward(scaler.scale(weighted) if scaler else weighted)
        lap("backward")
        return loss.detach() if share == 1.0 else loss.detach() * share

    learner.optimizer.zero_grad(set_to_none=True)
    masked = learner.masked()
    with nullcontext() if weight else without_trace(learner.model):
        *earlier, last = shares
        losses: list[Tensor] = []
        if earlier:
            with learner.no_sync():
                losses = [forward_backward(share) for share in earlier]
        loss = sum(losses, start=forward_backward(last))  # Exchanges the gradients of all batches.
    finite = learner.update(clip_grad_norm)
    if masked and finite is not None:
        masked.put_back_unless(finite)
    lap("optimizer")
    return StepOutcome(loss if weight else None, finite)


def _nothing(_: str) -> None:
    """Replaces `StepTimes.lap` if nothing is measured."""

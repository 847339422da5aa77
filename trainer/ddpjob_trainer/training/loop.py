"""The loop: epochs of steps, with an evaluation after each."""

import math
import time
from dataclasses import dataclass

import torch
from ddpjob_rank.console import record
from ddpjob_rank.failure.report import last_line
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.stopping import StoppedOnRequest, StopRequest
from ddpjob_rank.world import World

from ddpjob_trainer.checkpoint.saving import Saver
from ddpjob_trainer.checkpoint.state import Learner
from ddpjob_trainer.data.feed import Feed
from ddpjob_trainer.data.loader import Loader
from ddpjob_trainer.group.agreement import Agreement, Wish
from ddpjob_trainer.position import Position
from ddpjob_trainer.recording.progress import Line, Progress
from ddpjob_trainer.recording.recorder import Recorder, by_rank
from ddpjob_trainer.recording.step_times import StepTimes
from ddpjob_trainer.task import Task

from .evaluation import Evaluation, evaluate
from .stepping import Stepper


@dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
    """All parts of a run, ready to train."""

    task: Task
    world: World
    device: torch.device
    learner: Learner
    stepper: Stepper
    feed: Feed
    test_data: Loader | None
    epochs: int | None
    """None: only the steps end training."""
    position: Position
    progress: Progress
    saver: Saver | None
    stop: StopRequest
    agreement: Agreement
    times: StepTimes
    recorder: Recorder

    def run(self) -> None:
        """Trains from the position to the end of the last epoch.

        Raises:
            StoppedOnRequest: A rank was told to stop; all have finished the same step, and it is saved.
        """
        try:
            self._run()
        except Exception as error:
            ended = {"error": type(error).__name__, "message": last_line(error)}
            self.recorder.add("ended", self.position.step, **ended)
            if self.saver:
                self.saver.finish_after(error)
            raise
        finally:
            self.recorder.close()

    def _run(self) -> None:
        reporting.report(total=self.progress.total_steps, samples=self.feed.global_batch)
        began, first_step, training_seconds = time.monotonic(), self.position.step, 0.0
        result: Evaluation | None = None
        while True:
            if self.position.step < self.progress.total_steps:
                training_seconds += self._train_epoch()
            result = self._evaluate()
            self._tell_broken()
            if self.position.step >= self.progress.total_steps or self.position.epoch == self.epochs:
                break
            self.position.next_epoch()
        self._finish_save()
        self.agreement.finish()
        if self.world.leads:
            samples = (self.position.step - first_step) * self.feed.global_batch
            pace = round(samples / training_seconds) if samples else 0
            seconds = round(time.monotonic() - began, 1)
            shown = result.shown if result else {}
            record("finished", step=self.position.step, **shown, samples_per_second=pace, seconds=seconds)
            self.recorder.add("finished", self.position.step, samples_per_second=pace, seconds=seconds)

    def _train_epoch(self) -> float:
        """Trains what is left of the epoch, and returns the seconds that it took."""
        began, before = time.monotonic(), self.position.step
        self._begin("training")
        self.progress.resume()
        self.stepper.model.train()
        self.times.start()
        # What is left of the epoch, or of the run if that ends earlier.
        most = self.progress.total_steps - self.position.step
        for step in self.feed.steps(self.position.epoch, self.position.samples, most):
            loss = self.stepper.step(*step)
            self.position.advance(self.feed.global_batch)
            self._report_step(self.progress.step(loss))
            self._after_step()
            self.times.start()
        if self.feed.left() is None and before < self.position.step < self.progress.total_steps:
            self._save_late()
        return time.monotonic() - began

    def _report_step(self, line: Line | None) -> None:
        """Reports the finished step to the supervisor, with the last printed loss: so nothing need be read."""
        reporting.report(step=self.position.step, loss=self.progress.loss)
        if parts := self.times.step():
            reporting.report_parts(parts)
            self.recorder.add(
                "timed", self.position.step, seconds=parts, rank_seconds=by_rank(self.agreement.own_seconds)
            )
        if line:
            self.recorder.add(
                "progress",
                self.position.step,
                epoch=self.position.epoch,
                loss=line.loss,
                learning_rate=self._learning_rate(),
                samples_per_second=line.steps_per_second * self.feed.global_batch,
            )

    def _learning_rate(self) -> float | None:
        """The first group's for the next step; None: it is a tensor, which may be on a device."""
        rate = self.learner.optimizer.param_groups[0]["lr"]
        return rate if isinstance(rate, float) else None

    def _begin(self, activity: str) -> None:
        """What the process does now, for the failure report and for the supervisor."""
        self.position.activity = activity
        reporting.report(activity=activity, epoch=self.position.epoch)

    def _after_step(self) -> None:
        """Saves if it is time to, and stops if any rank was told to: all ranks after the same step."""
        granted = self.agreement.granted()
        if self.saver:
            self.saver.settle()
        if self._save_is_due(granted):
            self._save()
        if granted is Wish.STOP:
            self._finish_save()
            raise StoppedOnRequest(self._last_words())
        self.agreement.propose(self._wish, self.times.own_seconds)

    def _wish(self) -> Wish:
        if self.stop.made:
            return Wish.STOP
        return self.saver.wish() if self.saver else Wish.NOTHING

    def _save_is_due(self, granted: Wish) -> bool:
        if self.saver is None:
            return False
        step = self.position.step
        epoch_ends = self.feed.left(self.position.samples) == 0
        last = step == self.progress.total_steps
        return granted >= Wish.SAVE or last or self.saver.due(step, epoch_ends=epoch_ends)

    def _save_late(self) -> None:
        """Saves an epoch whose last step was not known to be the last one."""
        if self.saver is None or self._save_is_due(Wish.NOTHING):
            return
        if self.position.epoch == self.epochs or self.saver.due(self.position.step, epoch_ends=True):
            self._save()

    def _save(self) -> None:
        assert self.saver is not None, "a save is due"
        self.saver.save(self.learner, self.position, self._begin)
        self._begin("training")

    def _finish_save(self) -> None:
        """Waits until the last save is durable."""
        if self.saver:
            self._begin("saving")
            self.saver.finish()

    def _last_words(self) -> str:
        if self.saver is None:
            return f"stopped on request after step {self.position.step}; without --checkpoint-dir nothing is saved"
        return f"saved step {self.position.step}, stopped on request"

    def _evaluate(self) -> Evaluation | None:
        if self.test_data is None:
            return None
        self._begin("evaluation")
        result = evaluate(
            self.learner.evaluated,
            self.task,
            self.test_data,
            autocast=self.stepper.autocast,
            world=self.world,
            # As many samples as the model takes at a time in training.
            batch_size=math.ceil(self.feed.batch_size / len(self.stepper.shares)),
        )
        if result:
            epoch = self.position.epoch_of(self.epochs)
            record("evaluated", epoch=epoch, **result.shown, loss=f"{result.loss:.4f}", samples=result.samples)
            self.recorder.add(
                "evaluated",
                self.position.step,
                **result.metrics | {"epoch": self.position.epoch, "loss": result.loss, "samples": result.samples},
            )
        return result

    def _tell_broken(self) -> None:
        broken = self.task.broken_samples(self.world)
        if broken is not None and self.world.leads:
            record("skipped", epoch=self.position.epoch_of(self.epochs), broken=broken)
            self.recorder.add("skipped", self.position.step, epoch=self.position.epoch, broken=broken)

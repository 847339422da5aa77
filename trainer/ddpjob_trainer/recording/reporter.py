"""Reports the progress of a run: to its log, to its supervisor, and to the file of its metrics."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ddpjob_rank.console import record
from ddpjob_rank.failure.failure_report import last_line
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting.agreement import Agreement
from ddpjob_rank.world import World
from torch import Tensor
from torch.optim import Optimizer

from .position import Position
from .progress_lines import ProgressLines
from .recorder import Recorder, by_rank
from .step_times import StepTimes

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation: means over all samples."""

    metrics: dict[str, float]
    loss: float
    samples: int

    @property
    def shown(self) -> dict[str, str]:
        """The metrics as they are printed."""
        return {name: f"{value:.4f}" for name, value in self.metrics.items()}


@dataclass(slots=True)
class Reporter:
    """Reports how a run goes; each method is called when the event that it is named after has happened."""

    position: Position
    progress: ProgressLines
    recorder: Recorder
    times: StepTimes
    agreement: Agreement
    world: World
    optimizer: Optimizer
    global_batch: int
    """The number of samples by which a step advances the position, summed over all processes."""
    _first_step: int = field(init=False, default=0)
    _began: float = field(init=False, default=0.0)
    _training_seconds: float = field(init=False, default=0.0)

    def began(self) -> None:
        """Reports that the first step is about to be trained."""
        reporting.report(total=self.progress.total_steps, samples=self.global_batch)
        self._began, self._first_step = time.monotonic(), self.position.step

    def begin(self, activity: str) -> None:
        """Reports to the supervisor that another activity begins. A failure report would name the activity."""
        self.position.activity = activity
        reporting.report(activity=activity, epoch=self.position.epoch)

    @contextmanager
    def training(self) -> Iterator[None]:
        """A context in which steps are trained. Its time counts as training."""
        began = time.monotonic()
        self.begin("training")
        self.progress.resume()
        self.times.start()
        yield
        self._training_seconds += time.monotonic() - began

    def step(self, loss: Tensor | None) -> None:
        """Reports a finished step. The supervisor gets the last printed loss, because reading another takes time."""
        line = self.progress.step(loss)
        step = self.position.step
        reporting.report(step=step, loss=self.progress.loss)
        if parts := self.times.step():
            reporting.report_parts(parts)
            self.agreement.note(round(self.times.busy_seconds * MICROSECONDS))
            self.recorder.add("timed", step, seconds=parts, rank_seconds=by_rank(self._rank_seconds()))
        if line:
            self.recorder.add(
                "progress",
                step,
                epoch=self.position.epoch,
                loss=line.loss,
                learning_rate=self._learning_rate(),
                samples_per_second=line.steps_per_second * self.global_batch,
            )

    def _rank_seconds(self) -> list[float]:
        """On rank 0, the time of each rank's own part of a step, 0 if it is unknown; empty if none is known."""
        noted = self.agreement.noted
        return [noted.get(rank, 0) / MICROSECONDS for rank in range(self.world.world_size)] if noted else []

    def _learning_rate(self) -> float | None:
        """The first group's rate in the next step; None if it is a tensor, which may be slow to read from a GPU."""
        rate = self.optimizer.param_groups[0]["lr"]
        return rate if isinstance(rate, float) else None

    def evaluated(self, result: Evaluation) -> None:
        """Reports the result of an evaluation on the held-out set."""
        record("evaluated", epoch=self._epoch, **result.shown, loss=f"{result.loss:.4f}", samples=result.samples)
        values = result.metrics | {"epoch": self.position.epoch, "loss": result.loss, "samples": result.samples}
        self.recorder.add("evaluated", self.position.step, **values)

    def skipped(self, broken: int) -> None:
        """Reports, after an epoch, that `broken` samples have been replaced by others since the start."""
        if self.world.leads:
            record("skipped", epoch=self._epoch, broken=broken)
            self.recorder.add("skipped", self.position.step, epoch=self.position.epoch, broken=broken)

    @property
    def _epoch(self) -> str:
        return self.position.epoch_of(self.progress.epochs)

    def finished(self, result: Evaluation | None) -> None:
        """Reports that all steps are trained. `result` is the result of the last evaluation."""
        if self.world.leads:
            step = self.position.step
            samples = (step - self._first_step) * self.global_batch
            pace = round(samples / self._training_seconds) if samples else 0
            seconds = round(time.monotonic() - self._began, 1)
            shown = result.shown if result else {}
            record("finished", step=step, **shown, samples_per_second=pace, seconds=seconds)
            self.recorder.add("finished", step, samples_per_second=pace, seconds=seconds)

    def ended(self, error: Exception) -> None:
        """Reports that the run ends with an error."""
        self.recorder.add("ended", self.position.step, error=type(error).__name__, message=last_line(error))

    def close(self) -> None:
        """Closes the file of metrics. No other event may follow."""
        self.recorder.close()

"""`Training`: what turns a training script into one that resumes."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal, Never, SupportsFloat

from ddpjob_rank.console import say, warn
from ddpjob_rank.errors import ConfigError, DivergedError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting import request
from ddpjob_rank.reporting.agreement import Wish

from ddpjob import random_state
from ddpjob.checkpoint.encoding import StateDict
from ddpjob.data.loader_parts import described, length_of
from ddpjob.data.resumable_loader import ResumableLoader

from .connecting import opened
from .losses import Losses
from .named import Named, arguments_of, check_by_name
from .resumed import Resumed, restore
from .save_settings import read_settings
from .saver import Saved, Where

EPOCH_BITS = 40
"""Positions in an epoch are smaller than 2 to this power, so that (epoch, position) fits into one number."""


MOST_BATCHES = 100
"""After this many batches without a call of `step`, a warning says what `step` is for."""


class Training:
    """A training run that resumes, saves while the loop goes on, and stops when it is told to.

        training = ddpjob.Training(model=model, optimizer=optimizer, loader=loader, directory="checkpoints")
        for epoch in training.epochs(10):
            for x, y in training.batches():
                loss = loss_fn(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                training.step(loss)
            with training.evaluation():
                evaluate(model)

    If there is a checkpoint, the objects are restored immediately. The state is saved when control returns to
    `batches` or `epochs`, so it includes all that the body of the loop does after `step`. All ranks make the same
    calls.

    After a resumption in the middle of an epoch, the body of the outer loop begins again, with the random numbers
    that it had at the beginning of the epoch. `batches` then yields the batches that are left, if there are any.

    Without a loader, training is saved and stopped at the end of an epoch. To save and stop between two steps, too,
    call `ddpjob.stop_requested` after each step:

        for epoch in training.epochs(10):
            for x, y in own_data(epoch):
                train_one_step(x, y)
                training.step()
                if ddpjob.stop_requested():
                    break

    When control then returns to `epochs`, the program ends. After a resumption, that epoch begins again.
    """

    def __init__(
        self,
        *_unnamed: Never,
        loader: Any = None,
        directory: str | os.PathLike[str] | None = None,
        every_steps: int | None = None,
        every_seconds: float | Literal["auto"] | None = None,
        keep: int | None = None,
        on_nonfinite: Literal["stop", "ignore"] = "stop",
        **objects: Any,
    ) -> None:
        """Connects the ranks, and resumes from the newest checkpoint, if there is one.

        Args:
            loader: What `batches` iterates over: a DataLoader or any other iterable.
            directory: Where to save, and to resume from. By default the job's checkpoint directory. Without any
                directory, nothing is saved.
            every_steps: Steps between two saves. By default, `Training` saves at the end of each epoch.
            every_seconds: Seconds between two saves, instead of `every_steps`; "auto" means the interval that costs
                the least time.
            keep: How many checkpoints to keep; 3 by default.
            on_nonfinite: What to do if a loss or, at a save, a parameter is NaN or infinite: stop with an error, or
                ignore it. Parameters that are not finite are not saved in either case.
            objects: What to save, by name: objects with state_dict() and load_state_dict(), or dicts of these. An
                Accelerator of Hugging Face stands for all that it has prepared and registered.

        Raises:
            ConfigError: An argument has an invalid value, or a state cannot be saved or does not fit its object.
            CheckpointUnusableError, StorageError: There are checkpoints, but they cannot be used, or cannot be read
                now.
        """
        check_by_name(Training, _unnamed, objects)
        settings = read_settings(
            directory, every_steps=every_steps, every_seconds=every_seconds, keep=keep, on_nonfinite=on_nonfinite
        )
        self._named = Named(objects, arguments_of(Training))
        self._saver = opened("ddpjob.Training", self._named, settings, step="training.step()")
        world = self._saver.world
        self._loader = ResumableLoader(loader, rank=world.rank, size=world.world_size)
        self._has_loader, self._tried = loader is not None, False
        self._length, self._data_of = length_of(loader), described(loader)
        self._losses, self._stops_if_nonfinite = Losses(), on_nonfinite == "stop"
        self._step = self._epoch = self._in_epoch = 0
        self._total_told = False
        self._epochs: int | None = None
        self._loops = 0
        """How many loops over epochs have begun."""
        self._begun = -1
        """The last epoch in which `batches` was called."""
        self._stopped = False
        """Whether `ddpjob.stop_requested` has returned True in a loop without a loader."""
        self._warned = False
        self._random_of_epoch: StateDict | None = None
        """The random generators as they were at the beginning of the epoch; None between two epochs."""
        self._after_batches: StateDict = {}
        """This rank's own state after the last batch of the epoch, as far as it may change until the epoch's end."""
        self._resumed_random = deque[StateDict]()
        """States of the generators to restore: when the epoch begins, and when its batches go on."""
        self.resumed: Resumed | None = None
        """Where this training has resumed; None if it has started from the beginning."""
        if saved := self._saver.find():
            self._resume(saved)
        reporting.reports_steps()

    @property
    def global_step(self) -> int:
        """The number of finished optimizer steps, including those before a resumption."""
        return self._step

    @property
    def epoch(self) -> int:
        """The present epoch, from 0, as range(total) counts. Log lines, messages and the status count from 1."""
        return self._epoch

    def epochs(self, total: int) -> Iterator[int]:
        """Yields the numbers of the epochs that are left. Without a resumption, these are those of range(total).

        They begin with 0, as usual in Python. Log lines, messages and the status count epochs from 1.

        After a resumption, the first epoch is the one that was interrupted. When control returns, the epoch is
        finished, and saved if a save is due. If the job was told to stop, this ends the program after the save.

        Args:
            total: The number of epochs of the whole training.

        Raises:
            ConfigError: `total` is not a whole number above 0.
            DivergedError: A loss or a parameter is not finite.
            StorageFullError, StorageError, PeerLostError, SupersededError: A save has failed for good.
            SystemExit: The training was saved, and all ranks stop.
        """
        if type(total) is not int or total < 1:
            raise ConfigError(f"epochs({total!r}): the number of epochs must be a whole number above 0")
        self._saver.check_open()
        self._saver.listen(None if self._has_loader else self._between_steps)
        self._epochs = total
        self._restore_random()
        if self._epoch >= total and self._saver.world.leads:
            say(
                f"all {total} epochs were trained before, so no epoch is left: to train more, raise the number of"
                " epochs, or name another directory to begin anew"
            )
        self._loops += 1
        loop = self._loops
        try:
            while self._epoch < total:
                self._random_of_epoch = random_state.capture()
                yield self._epoch
                if self._stopped:
                    raise SystemExit(ExitCode.SAVED_AND_STOPPED)
                self._finish_epoch(last=self._epoch + 1 == total)
        finally:  # Also after a `break`: from then on, a signal would have no effect.
            if loop == self._loops:  # In a notebook, an earlier loop may end after another has begun.
                self._saver.stop_listening()

    def batches(self) -> Iterator[Any]:
        """Yields the batches of the loader that are left in the present epoch.

        Raises:
            ConfigError: There is no loader, or this is the second call in an epoch.
            DivergedError: A loss or a parameter is not finite.
            StorageFullError, StorageError, PeerLostError, SupersededError: A save has failed for good.
            SystemExit: The training was saved, and all ranks stop.
        """
        self._saver.check_open()
        if not self._has_loader:
            raise ConfigError("batches() needs a loader: pass loader=… to Training")
        if self._begun == self._epoch:
            raise ConfigError(
                f"batches() was called before in epoch {self._epoch + 1}: call it once in each epoch, in a loop over"
                " epochs(…). If such a loop was interrupted, create the Training again"
            )
        self._begun, batches_per_step = self._epoch, 0
        self._restore_random()
        for batch in self._loader.batches(self._epoch):
            if self._saver.saves and not self._tried:
                self._tried = True
                # If the position cannot be saved, this raises the error now rather than at the first save.
                self._loader.state()
            before, batches_per_step = self._step, batches_per_step + 1
            yield batch
            if self._step == before:  # Gradients are being accumulated.
                if batches_per_step == MOST_BATCHES:
                    self._warn_without_steps(f"in {MOST_BATCHES} batches")
                continue
            self._after_step()
            if not self._total_told:
                self._report_total(batches_per_step)
        self._end_batches()
        if not batches_per_step and self._in_epoch and self._saver.world.leads:
            say(
                f"no batch of epoch {self._epoch + 1} is left, because the checkpoint was saved after its last batch:"
                " the loop over batches() ends immediately"
            )

    def step(self, loss: SupportsFloat | None = None, **metrics: SupportsFloat) -> None:
        """Notes that the optimizer has made a step. Takes a few microseconds, and never waits for a GPU.

        If the program has passed its Accelerator, calls while that accumulates gradients are ignored.

        Args:
            loss: The loss of this rank: a number, or a tensor that holds one number.
            metrics: Other numbers to report, by name, such as `accuracy`.
        """
        self._saver.check_open()
        if self._named.accumulating:
            return
        self._step += 1
        self._in_epoch += 1
        known = self._losses.arrived() if loss is None else self._losses.note(self._step, loss)
        reporting.report_step(self._step, self._epoch + 1, known)
        if metrics:
            reporting.measure(metrics)

    def evaluation(self) -> AbstractContextManager[None]:
        """A context in which the program evaluates its model. DDPJob then allows more time than for a step."""
        return reporting.activity("evaluation")

    def _resume(self, saved: Saved) -> None:
        self.resumed = restore(self._named, saved, self._saver, self._data_of)
        self._step, self._epoch = self.resumed.step, self.resumed.epoch
        self._saver.restore_random(saved)
        own = self._saver.own_state(saved)
        if own:
            states = [state for state in (own.get("random_of_epoch"), own["random"]) if state]
            self._resumed_random.extend(states if self._has_loader else states[:1])
        first = own or saved.ranks[0]
        self._in_epoch = first.get("steps_of_epoch", 0)
        if self._in_epoch and not self._has_loader and self._saver.world.leads:
            warn(
                f"epoch {self._epoch + 1} begins again, and the samples seen in it are seen twice: the position in"
                " the data is unknown, because the program iterates over its data itself. Pass it as loader=…"
            )
        if self._has_loader and first.get("data") is not None:
            self._loader.restore([each["data"] for each in saved.ranks])

    def _restore_random(self) -> None:
        """Restores the random generators, because the program may have drawn from them since `__init__`."""
        if self._resumed_random:
            random_state.restore(self._resumed_random.popleft())

    def _own(self) -> StateDict:
        return {
            "epoch": self._epoch,
            "steps_of_epoch": self._in_epoch,
            "random_of_epoch": self._random_of_epoch,
            "buckets": self._named.buckets(),
            "data": self._loader.state() if self._has_loader else None,
            "data_of": self._data_of,
        }

    def _end_batches(self) -> None:
        """Keeps this rank's state after its last batch, for a save of ranks that still have batches."""
        if self._saver.saves and not self._saver.world.alone:
            self._after_batches = {
                "epoch": self._epoch,
                "steps_of_epoch": self._in_epoch,
                "random_of_epoch": self._random_of_epoch,
                "random": random_state.capture(),
            }

    def _report_total(self, batches_per_step: int) -> None:
        """Reports the number of the last step, if the number of batches per epoch is known."""
        self._total_told = True
        if self._epochs and self._length:
            steps = self._length // batches_per_step
            total = self._step - self._in_epoch + (self._epochs - self._epoch) * steps
            reporting.report(total=max(total, self._step))

    def _after_step(self) -> None:
        """Saves or stops, if the program has called `step` since the last batch.

        What is due at the last batch is saved at the end of the epoch, so that what follows the inner loop runs once.
        """
        self._check_loss()
        position = (self._epoch << EPOCH_BITS) + self._in_epoch
        if self._reached(position, epoch=self._epoch + 1, postpones=lambda: self._loader.last):
            raise SystemExit(ExitCode.SAVED_AND_STOPPED)

    def _between_steps(self) -> None:
        """Like `_after_step`, without a loader. Runs when the program calls `ddpjob.stop_requested` in an epoch."""
        if self._random_of_epoch is not None and not self._stopped:
            self._check_loss()
            position = (self._epoch << EPOCH_BITS) + self._in_epoch
            self._stopped = self._reached(position, epoch=self._epoch + 1)

    def _warn_without_steps(self, when: str) -> None:
        if self._warned or self._step > (self.resumed.step if self.resumed else 0):
            return
        self._warned = True
        warn(
            f"rank {self._saver.world.rank} has not called training.step(loss) {when}: call it after each step of the"
            " optimizer. Without it, steps are not counted, training is not saved within an epoch, and a stop waits"
            " for the end of the epoch"
        )

    def _finish_epoch(self, *, last: bool) -> None:
        if not self._in_epoch:
            self._warn_without_steps(f"in epoch {self._epoch + 1}")
        self._epoch, self._in_epoch, self._random_of_epoch = self._epoch + 1, 0, None
        # The total is reported anew in the next epoch: a resumed epoch may have had another batch size.
        self._total_told = False
        if last:
            reporting.report(total=self._step)
        if (loss := self._losses.arrived()) is not None:
            reporting.report(loss=loss)
        self._check_loss()
        after, self._after_batches = self._after_batches, {}
        end = self._epoch << EPOCH_BITS
        if self._reached(end, epoch=self._epoch, ends=True, last=last, within=lambda: self._own() | after):
            raise SystemExit(ExitCode.SAVED_AND_STOPPED)

    def _reached(self, position: int, *, epoch: int, last: bool = False, **how: Any) -> bool:
        """Saves if a save is due; returns whether the program stops."""
        where = Where(self._step, epoch)
        decision = self._saver.reached(position, where, self._named.state, self._own, last=last, **how)
        if last:
            self._saver.finish()
        stops = decision is Wish.STOP and not last
        if stops:
            request.notice_stop()
            if self._saver.world.leads:
                say(f"stopped on request after step {self._step}{self._saver.last_words()}")
        return stops

    def _check_loss(self) -> None:
        if self._stops_if_nonfinite and (found := self._losses.nonfinite):
            step, loss = found
            raise DivergedError(
                f"training has diverged: the loss of step {step} is {loss}. Lower the learning rate, or pass"
                ' on_nonfinite="ignore" if the program handles such losses itself'
            )

"""`Checkpoints`: saves and resumes a program that has its own loop, without `Training`."""

import os
from dataclasses import replace
from typing import Any, Literal, Never

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.reporting import request
from ddpjob_rank.reporting.agreement import Wish

from ddpjob.checkpoint.encoding import StateDict

from .connecting import opened
from .named import Named, arguments_of, check_by_name
from .resumed import Resumed, restore
from .save_settings import AUTO, read_settings
from .saver import Where


class Checkpoints:
    """Saves and restores the named objects of a program with its own loop.

        checkpoints = ddpjob.Checkpoints(model=model, optimizer=optimizer, directory="checkpoints")
        resumed = checkpoints.resume()
        for step in range(resumed.step if resumed else 0, 1000):
            train_one_step()
            checkpoints.save_if_due(step + 1)
            if ddpjob.stop_requested():
                break
        checkpoints.finish()

    All ranks make the same calls. Rank 0 writes; a save is written while training goes on.
    """

    def __init__(
        self,
        *_unnamed: Never,
        directory: str | os.PathLike[str] | None = None,
        every_steps: int | None = None,
        every_seconds: float | Literal["auto"] | None = None,
        keep: int | None = None,
        **objects: Any,
    ) -> None:
        """Connects the ranks.

        Args:
            directory: Where to save, and to resume from. By default the job's checkpoint directory. Without any
                directory, nothing is saved.
            every_steps: Steps between two saves.
            every_seconds: Seconds between two saves, instead of `every_steps`; "auto", the default, means the
                interval that costs the least time.
            keep: How many checkpoints to keep; 3 by default.
            objects: What to save, by name: objects with state_dict() and load_state_dict(), or dicts of these. An
                Accelerator of Hugging Face stands for all that it has prepared and registered.

        Raises:
            ConfigError: An argument has an invalid value, or the state of an object cannot be saved.
            StorageError: The directory cannot be used.
        """
        check_by_name(Checkpoints, _unnamed, objects)
        settings = read_settings(directory, every_steps=every_steps, every_seconds=every_seconds, keep=keep)
        if settings.every_steps is None and settings.every_seconds is None:
            settings = replace(settings, every_seconds=AUTO)
        self._has_looked = False
        self._last: int | None = None
        """The step of the last call of `save_if_due`."""
        self._named = Named(objects, arguments_of(Checkpoints))
        self._saver = opened("ddpjob.Checkpoints", self._named, settings, step="save_if_due()")
        self.resumed: Resumed | None = None
        """Where the program has resumed; None if it has started from the beginning."""

    def resume(self) -> Resumed | None:
        """Restores the objects and the random generators from the newest checkpoint.

        Returns where the training resumes; None if there is no checkpoint.

        Raises:
            ConfigError: The checkpoint does not fit the objects.
            CheckpointUnusableError, StorageError: There are checkpoints, but they cannot be used, or cannot be read
                now.
        """
        self._has_looked = True
        if saved := self._saver.find():
            self.resumed = restore(self._named, saved, self._saver)
            self._saver.restore_random(saved)
        return self.resumed

    def save_if_due(self, step: int) -> bool:
        """Saves if a checkpoint is due after this step; returns whether a save has begun.

        Not every save that is due begins: while the previous one is still being written, rank 0 skips it. The other
        ranks have already sent their part by then, and return True.

        All ranks call this after each step. `step` is the number of finished steps, which has to rise. If the job was
        told to stop, this saves, and waits until the checkpoint is durable; after that `ddpjob.stop_requested()`
        returns True.

        Raises:
            ConfigError: `resume` was not called before, another Checkpoints or Training has replaced this one, or
                `step` is smaller than in the last call.
            StorageFullError, StorageError, PeerLostError, SupersededError, DivergedError: A save has failed for good.
        """
        if not self._has_looked:
            raise ConfigError("call resume() before save_if_due(): otherwise an existing checkpoint would be ignored")
        if self._last is not None and step < self._last:
            raise ConfigError(
                f"save_if_due({step}) after save_if_due({self._last}): pass the number of all steps that are"
                " finished, which rises from call to call, also from epoch to epoch"
            )
        self._last = step
        decision = self._saver.reached(step, Where(step, epoch=1), self._named.state, self._own)
        if decision is Wish.STOP:
            request.notice_stop()
        return self._saver.begun_position == step

    def finish(self) -> None:
        """Saves the last step, unless it is saved already, and waits until it is durable.

        All ranks call it at the end of training.

        Raises:
            StorageFullError, StorageError, PeerLostError, SupersededError, DivergedError: It could not be written.
        """
        if self._last is None:
            self._saver.finish()
        else:
            self._saver.finish_last(Where(self._last, epoch=1), self._named.state, self._own)
        request.stops_no_more()

    def _own(self) -> StateDict:
        return {"buckets": self._named.buckets()}

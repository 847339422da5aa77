"""Lets Lightning's Trainer resume and stop in a job with a checkpoint directory.

Checkpoints that the program saves itself stay as they are. `fit` resumes from this job's newest checkpoint in the
checkpoint directory, which is at least as new as the program's. `ckpt_path` counts only if this job has no
checkpoint.

Lightning has no hook that comes after all other work of a step or an epoch, so this module wraps the methods that end
them, and those that restore a checkpoint. The data resumes at the next batch. Lightning itself would begin the
epoch's data again, unless the loader has a `state_dict`.
"""

import signal
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from ddpjob_rank.console import say, warn
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.exit_codes import ExitCode
from ddpjob_rank.reporting import request
from ddpjob_rank.reporting.agreement import Wish
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loops.fetchers import _PrefetchDataFetcher
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.migration import migrate_checkpoint

from ddpjob import random_state
from ddpjob.checkpoint.divided import is_zero
from ddpjob.checkpoint.encoding import StateDict
from ddpjob.training.buckets import arrange, orders
from ddpjob.training.connecting import opened
from ddpjob.training.named import Named
from ddpjob.training.save_settings import SaveSettings, read_settings
from ddpjob.training.saver import Saved, Where
from ddpjob.training.training import EPOCH_BITS

WHOSE = "Trainer.fit"
NAME = "lightning"
"""The name under which our checkpoint holds Lightning's checkpoint."""

ONLY_FOR_LOADING = ("hparams_name", "hyper_parameters", "datamodule_hparams_name", "datamodule_hyper_parameters")
"""Keys that Lightning needs only to build a model from a checkpoint. Their values may be objects of any class."""

NOT_RESUMABLE = "You're resuming from a checkpoint that ended before the epoch ended"
"""Lightning's warning that batches will be seen twice, which does not hold here."""

COUNTS = ("ready", "started", "processed", "completed")


class ResumeCallback(Callback):  # type: ignore[misc]  # mypy ignores the types of Lightning.
    """Saves, resumes and stops the first `fit` of a process."""

    _used = False
    """Whether this process has called `fit`. Only the first call resumes: a checkpoint belongs to one `fit`."""

    def __init__(self) -> None:
        self._fit: _Fit | None = None

    def setup(self, trainer: Any, _module: Any, stage: str) -> None:
        """Finds the checkpoint to resume from. By now the process group exists, and nothing has been restored."""
        settings = read_settings(None, every_steps=None, every_seconds=None, keep=None)
        if stage != "fit" or ResumeCallback._used or settings.directory is None:
            return
        # With other strategies, the ranks' states differ.
        if not isinstance(trainer.strategy, DDPStrategy | SingleDeviceStrategy):
            return
        ResumeCallback._used = True
        self._fit = _Fit(trainer, settings)
        self._fit.wrap()

    def on_train_start(self, *_: Any) -> None:
        """Skips the batches of the epoch that were trained before."""
        if self._fit:
            self._fit.begin()


class _State:
    """Lightning's checkpoint of a Trainer."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.ready = False
        """Whether the Trainer has created or restored everything that a checkpoint contains."""
        self.loaded: StateDict = {}

    def state_dict(self) -> StateDict:
        state = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False) if self.ready else {}
        return {key: value for key, value in state.items() if key not in ONLY_FOR_LOADING}

    def load_state_dict(self, state: StateDict) -> None:
        self.loaded, _ = migrate_checkpoint(state)


class _Fit:
    """One `fit` of a Trainer. Wraps the Trainer's methods."""

    def __init__(self, trainer: Any, settings: SaveSettings) -> None:
        self._trainer, self._state = trainer, _State(trainer)
        self._named = Named({NAME: self._state})
        self._saver = opened(WHOSE, self._named, settings)
        self._uid = settings.uid
        self._saved = self._saver.find()
        if self._saved and self._saved.ranks[0].get("uid") != self._uid:
            if self._saver.world.leads:
                say("fit starts from the beginning: the newest checkpoint is from another job, or not from Lightning")
            self._saved = None
        if self._saved:
            self._named.load(self._saved.state["shared"])
        self._handler = signal.getsignal(signal.SIGTERM)
        self._step = 0
        self._saves = True
        self._iterated: StateDict | None = None
        """The states of the random generators when the iteration over the epoch's data began."""

    def wrap(self) -> None:
        trainer = self._trainer
        loop = trainer.fit_loop
        _after(trainer._checkpoint_connector, "resume_end", self._restored)
        _before(loop.epoch_loop, "on_run_start", self._iterates)
        _after(loop.epoch_loop, "on_advance_end", self._after_batch)
        _after(loop, "on_advance_end", self._after_epoch)
        if self._saved:
            connector = trainer._checkpoint_connector
            connector.resume_start = partial(self._resume, connector)

    def begin(self) -> None:
        """Begins training, when the iterator over the data exists."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._handler)  # Lightning's own handler ends ranks at different steps.
        self._step = self._trainer.global_step
        if self._saved:
            self._saver.restore_random(self._saved)
        self._state.loaded = {}
        if any(map(is_zero, self._trainer.optimizers)):
            self._saves = False  # Only a collective can gather the optimizer's state, but rank 0 saves alone.
            return
        try:
            Named({NAME: self._state})
        except ConfigError as error:
            warn(f"DDPJob does not save this training: {error}")
            self._saves = False

    def _own_saved(self) -> StateDict:
        """This rank's own state in the checkpoint or, if the number of ranks has changed, that of rank 0."""
        assert self._saved
        return self._saver.own_state(self._saved) or self._saved.ranks[0]

    def _resume(self, connector: Any, *_: Any, **__: Any) -> None:
        """Replaces Lightning's method that reads a checkpoint file."""
        assert self._saved
        own, ranks = self._own_saved(), len(self._saved.ranks)
        if own["batches"] and ranks != self._saver.world.world_size:
            progress = self._state.loaded["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
            own["batches"] = own["batches"] * ranks // self._saver.world.world_size
            progress.update(dict.fromkeys(COUNTS, own["batches"]))
        connector._ckpt_path, connector._loaded_checkpoint = self._saved.location or "DDPJob", self._state.loaded
        warnings.filterwarnings("ignore", message=NOT_RESUMABLE)

    def _restored(self) -> None:
        """Called when all states are restored, before the iterator over the data is created."""
        self._state.ready = True
        if self._saved:  # Only now is there a DDP model.
            arrange([(NAME, self._trainer.strategy.model)], self._saved.ranks[0].get("buckets") or {})
        self._iterated = random_state.capture()

    def _iterates(self, fetcher: Any) -> None:
        """Called when the iterator over the epoch's data has been created."""
        loop = self._trainer.fit_loop
        if self._saved:
            if not all(hasattr(each, "load_state_dict") for each in loop._combined_loader.flattened):
                self._go_on(fetcher, self._saved)
            self._saved = None
        elif not loop.restarting and self._trainer.current_epoch > 0:
            self._iterated = random_state.capture()

    def _go_on(self, fetcher: Any, saved: Saved) -> None:
        """Creates the iterator again, as in the saved run, and skips the batches that were seen.

        Lightning has created it before calling `set_epoch`, so its workers have fetched batches of the first epoch.
        """
        own = self._saver.own_state(saved)
        batches = self._own_saved()["batches"]
        if own and batches:
            random_state.restore(own["iterated"])
        self._iterated = random_state.capture()
        iter(fetcher)
        if batches and isinstance(fetcher, _PrefetchDataFetcher):
            for _ in range(batches):
                next(fetcher)
            fetcher.fetched -= batches  # The loop counts them again.
            if own:
                random_state.restore(own["random"])

    def _after_batch(self) -> None:
        trainer = self._trainer
        if trainer.is_last_batch or trainer.global_step == self._step:
            # After the last batch, the end of the epoch saves. While gradients are being accumulated, nothing can be
            # saved.
            return
        batches = trainer.fit_loop.epoch_loop.batch_progress.current.completed
        self._reached((trainer.current_epoch << EPOCH_BITS) + batches, trainer.current_epoch, batches)

    def _after_epoch(self) -> None:
        self._reached(self._trainer.current_epoch << EPOCH_BITS, self._trainer.current_epoch, 0, ends=True)

    def _reached(self, position: int, epoch: int, batches: int, *, ends: bool = False) -> None:
        if not self._saves:
            return
        trainer = self._trainer
        self._step = trainer.global_step
        last = trainer.fit_loop.done
        decision = self._saver.reached(
            position,
            Where(self._step, epoch if ends else epoch + 1),
            self._named.state,
            lambda: {
                "uid": self._uid,
                "epoch": epoch,
                "batches": batches,
                "iterated": self._iterated,
                "buckets": orders([(NAME, trainer.strategy.model)]),
            },
            ends=ends,
            last=last,
        )
        if decision is Wish.STOP and not last:
            request.notice_stop()
            say(f"stopped on request after step {self._step}{self._saver.last_words()}")
            raise SystemExit(ExitCode.SAVED_AND_STOPPED)


def _before(owner: Any, name: str, act: Callable[[Any], object]) -> None:
    """Calls a function before a method of one object, with the same argument."""
    method = getattr(owner, name)
    setattr(owner, name, lambda argument: (act(argument), method(argument)))


def _after(owner: Any, name: str, act: Callable[[], object]) -> None:
    """Calls a function after a method of one object."""
    method = getattr(owner, name)
    setattr(owner, name, lambda *arguments: (method(*arguments), act()))

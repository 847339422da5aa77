"""Saves and resumes a training. Each of its processes has a saver.

    find --> the program restores its objects --> reached (after each step) --> finish

Rank 0 reads and writes checkpoints. It writes in a thread, while training goes on. The other ranks send their own
states to rank 0 when they save, and receive the checkpoint's bytes when they resume, so only rank 0 needs access to
the directory.
"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ddpjob_rank.console import listed, record, say, warn
from ddpjob_rank.errors import (
    ConfigError,
    DivergedError,
    PeerLostError,
    StorageError,
    StorageUnavailableError,
    TrainerError,
)
from ddpjob_rank.machine.storage import is_url, shown
from ddpjob_rank.manifests.manifest import Manifest, extended_lineage, new_run
from ddpjob_rank.manifests.unusable import BrokenError
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting import request
from ddpjob_rank.reporting.agreement import Agreement, Wish
from ddpjob_rank.world import World
from torch.utils import _pytree as pytree

from ddpjob import random_state
from ddpjob.checkpoint.checkpoint_directory import CheckpointDirectory
from ddpjob.checkpoint.checkpoint_storage import CheckpointStorage
from ddpjob.checkpoint.encoding import PLAIN, TENSORS, StateDict, decode
from ddpjob.checkpoint.opening import open_storage
from ddpjob.checkpoint.plain_values import NotPlainError, plain
from ddpjob.checkpoint.reading import Found
from ddpjob.checkpoint.shard_fitting import fitted
from ddpjob.checkpoint.sharded import RANKS_SECONDS, ShardedSaver
from ddpjob.checkpoint.writer import Writer, Written
from ddpjob.data.tracker import PositionError
from ddpjob.group.collectives import broadcast_file

from .rank_states import RankUnsavableError, StatePlace, StepsDifferError, gather, no_content, own_content
from .save_schedule import SaveSchedule
from .save_settings import SaveSettings

FAILING_SECONDS = 1800.0
"""Training ends if saves have failed for this long, and none has succeeded: the storage has failed for good."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The newest checkpoint of a training, on any rank."""

    state: StateDict
    """The decoded state; see `encoding` for its keys."""
    location: str
    """The checkpoint's path or URL. Ranks other than 0 receive replicated state from rank 0, and have none."""

    @property
    def step(self) -> int:
        """The number of steps after which it was saved."""
        return int(self.state["position"][0])

    @property
    def ranks(self) -> list[StateDict]:
        """The ranks' own states."""
        ranks: list[StateDict] = self.state["ranks"]
        return ranks


@dataclass(frozen=True, slots=True)
class Where:
    """How far a training has come."""

    step: int
    """The number of finished steps."""
    epoch: int
    """The epoch of the last step, from 1."""
    samples: int = 0
    """The number of samples of this epoch on which all ranks together have trained; 0 if unknown."""


class TrainingSaver:
    """Saves and finds the state of a training. Each rank makes the same calls."""

    def __init__(
        self,
        settings: SaveSettings,
        world: World,
        agreement: Agreement,
        group: Any = None,
        *,
        check_finite: Callable[[StateDict], object],
        check_found: Callable[[Found[StateDict]], object] = lambda _: None,
        divided: Collection[str] = (),
        saved: Callable[[Written], object] = lambda _: None,
        activity: Callable[[str], AbstractContextManager[object]] = reporting.activity,
        **facts: Any,
    ) -> None:
        """Opens the directory, on rank 0.

        Args:
            settings: Where and when to save.
            world: This process's place.
            agreement: The agreement of all ranks.
            group: A process group of all ranks, with gloo; None in a world of one.
            check_finite: Raises DivergedError if a shared state has a parameter that must not be saved.
            check_found: Raises if training must not go on from this checkpoint. Called on rank 0.
            divided: The names of the objects whose state is divided among the ranks. If any is, all ranks write.
            saved: Called on rank 0 with each save that is durable.
            activity: Returns a context for what this process does meanwhile: `saving`.
            facts: Further fields of the manifests.

        Raises:
            ConfigError, StorageError: The directory cannot be used.
        """
        self.world = world
        self.saves = settings.directory is not None
        self.saved_position: int | None = None
        """The position of the last save; None if this process has not saved yet."""
        self.begun_position: int | None = None
        """The position of the last save that this process has begun, and not skipped; None if there was none."""
        self.begun_step = -1
        """On rank 0, the step of the last save for which all ranks' states were awaited; -1 if there was none."""
        self._settings = settings
        self._agreement = agreement
        self._group = group
        self._check_finite, self._check_found = check_finite, check_found
        self._saved, self._activity = saved, activity
        self._storage: CheckpointStorage[Any] | None = None
        if settings.directory is not None and world.leads:
            self._storage = open_storage(settings.directory, settings.keep)
        self._writer = self._open_writer(divided)
        self._schedule = SaveSchedule(settings, world, agreement, gathers=self._writer is not None)
        self._manifest = Manifest(
            **{"globalBatchSize": 0, **facts},
            step=0,
            epoch=0,
            samples=0,
            worldSize=world.world_size,
            uid=settings.uid,
            lineage=(settings.attempt,),
            run=new_run(),
        )
        """The manifest that all saves share, except for the position."""
        self._stops: bool
        """Whether the save that is under way is that of a stop."""
        self._durable: int | None = None
        """The step of the last save that is durable."""
        self._newest = "there is no checkpoint"
        self._replaced = self._skipped = False
        self._failing_since: float | None = None

    def _open_writer(self, divided: Collection[str]) -> Writer | ShardedSaver | None:
        """What this rank writes with; None if it does not write."""
        directory, storage = self._settings.directory, self._storage
        if not divided or directory is None:
            return Writer(storage, self._check_finite) if storage else None
        if is_url(directory):
            raise ConfigError(
                f"{shown(directory)}: the state of {listed([*divided], 3)} is divided among the ranks, which needs a"
                " directory that all nodes share"
            )
        files = storage if isinstance(storage, CheckpointDirectory) else None
        return ShardedSaver(
            Path(directory), files, self.world, divided, group=self._group, check_finite=self._check_finite
        )

    def find(self) -> Saved | None:
        """Finds the newest checkpoint, and gives its state to all ranks. None if there is none, or no directory.

        Raises:
            CheckpointUnusableError, StorageUnavailableError: A checkpoint cannot be used, or cannot be read now.
        """
        if not self.saves:
            return None
        self._settle(wait=True)  # A sharded save uses this group, too, in its own thread.
        found = self._find(self._storage) if self._storage else None
        try:
            content = broadcast_file(found.content if found else None, self.world, self._group)
        except OSError as error:
            raise StorageUnavailableError(f"{found and found.location} cannot be read: {error.strerror}") from error
        if content is None:
            reporting.report(resumed=0)
            if self._settings.start_over:
                reporting.starts_over()
            return None
        location = found.location if found else ""
        if isinstance(self._writer, ShardedSaver):
            location = str(self._writer.located(Path(location).name))
        saved = Saved(found.state if found else decode(content.path), location)
        # A rank that keeps a part of the ranks' states must not keep the whole file open.
        saved.state["ranks"] = pytree.tree_map_only(torch.Tensor, torch.clone, saved.ranks)
        self._schedule.step = self._durable = saved.step
        if found:
            self._newest = _newest(saved.step, found.location)
            record("resumed", step=found.manifest.step, epoch=found.manifest.epoch, checkpoint=found.location)
        reporting.report(resumed=saved.step)
        return saved

    def shared_state(self, saved: Saved, objects: Mapping[str, Any]) -> StateDict:
        """The states of the objects in a checkpoint, ready for their `load_state_dict`.

        Raises:
            ConfigError, CheckpointUnusableError: Tensors that are divided do not fit, or cannot be read.
        """
        sharded = isinstance(self._writer, ShardedSaver)
        if TENSORS not in saved.state and not sharded:
            shared: StateDict = saved.state["shared"]
            return shared
        if not sharded and not self.world.alone:
            raise ConfigError(
                "the state in the checkpoint is divided among ranks, but the state of this training is not: divide"
                " it, too, for example by fully_shard, or write the weights into a file with ddpjob export"
            )
        return fitted(saved.state, Path(saved.location), objects)

    def own_state(self, saved: Saved) -> StateDict | None:
        """This rank's own state in a checkpoint; None if the number of ranks has changed."""
        return saved.ranks[self.world.rank] if len(saved.ranks) == self.world.world_size else None

    def restore_random(self, saved: Saved, seed: int = 0) -> None:
        """Restores this rank's random generators or, if the number of ranks has changed, seeds them anew."""
        if own := self.own_state(saved):
            random_state.restore(own["random"])
            return
        random_state.seed_all(seed, self.world.rank, saved.step)
        if self.world.leads:
            say(
                f"the number of processes changed from {len(saved.ranks)} to {self.world.world_size}: random"
                " generators are seeded anew"
            )

    def reached(
        self,
        position: int,
        where: Where,
        shared: Callable[[], StateDict],
        own: Callable[[], StateDict],
        *,
        ends: bool = False,
        last: bool = False,
        postpones: Callable[[], bool] = lambda: False,
        within: Callable[[], StateDict] | None = None,
    ) -> Wish:
        """Saves if a save is due at this position; returns what all ranks do here.

        Args:
            position: A number that rises with each call, and is the same on all ranks at the same point of training.
            where: How far training has come.
            shared: Returns the state that is the same on all ranks, or divided among them. Called only to save.
            own: Returns this rank's own state, without its random generators. Called only to save.
            ends: Whether an epoch ends here.
            last: Whether training ends here. Then this step is saved even if none is due.
            postpones: Returns whether a save has to wait for the next call. Called only to save. A stop does not
                wait.
            within: At the end of an epoch: like `own`, but as it was after the last batch. It belongs to a save of
                ranks that still had batches then.

        Raises:
            StorageFullError, StorageError, SupersededError, ConfigError, DivergedError: A save has failed for good.
        """
        self.check_open()
        writer = self._writer
        busy = writer is not None and writer.begun and writer.busy
        ready = self._storage is not None and not busy
        decision = self._schedule.decide(position, where.step, ready=ready)
        if not self.saves:
            return decision
        if writer and writer.begun:
            self.settle()
        self._stops = decision is Wish.STOP
        names = self._schedule.due(decision, position, where.step, ends=ends, last=last, postpones=postpones)
        if not names and not self._stops:
            return decision

        def own_for(name: str) -> Callable[[], StateDict]:
            return within if within and name != f"at-{position}" else own

        # A program may call this again at the same position, after a save there was skipped.
        if names and (self.saved_position != position or self.begun_step < where.step):
            place = StatePlace(position, where.epoch, ends)
            self._save(names, place, where, shared, own_for, waits=self._stops or last)
        if self._stops:
            self._finish_stop()
        return decision

    def settle(self) -> None:
        """Reports the save that is under way if it has become durable. Does not wait for it.

        Raises:
            StorageFullError, StorageError, SupersededError, ConfigError, DivergedError: A save has failed for good.
        """
        self._settle(wait=False)

    def listen(self, between_steps: Callable[[], object] | None = None) -> None:
        """Lets a signal stop all ranks after the same step, instead of ending this process.

        `between_steps` is called whenever the program calls `ddpjob.stop_requested`.
        """
        request.stops_by(partial(self._agreement.wish, Wish.STOP), always=self.saves, asked=between_steps)

    def stop_listening(self) -> None:
        """Lets signals do what they did before, unless a later training listens to them."""
        if not self._replaced:
            request.stops_no_more()

    def check_open(self) -> None:
        """Checks that no later training of this process has replaced this one.

        Raises:
            ConfigError: It has been replaced.
        """
        if self._replaced:
            raise ConfigError(
                "this Training or Checkpoints was replaced by a later one, because a process has only one: pass all"
                " objects to one, as in model={'generator': g, 'discriminator': d}"
            )

    def close(self) -> None:
        """Ends this training, because another one begins in this process."""
        self._replaced = True
        try:
            self.finish()
        except TrainerError as error:
            warn(str(error))
        request.stops_no_more()
        self._agreement.close()

    def _finish_stop(self) -> None:
        try:
            self.finish()
        except TrainerError:
            if self.world.leads:
                warn(f"stopped on request after step {self._schedule.step}, which is not saved: {self._newest}")
            raise

    def last_words(self) -> str:
        """Where the last save is, as the end of a sentence."""
        if not self.saves:
            return "; nothing is saved"
        saved = "saved" if self._durable == self._schedule.step else "not saved"
        return f", which is {saved} in {self._settings.directory}"

    def finish(self) -> None:
        """Waits until the save that is under way is durable.

        Raises:
            StorageFullError, StorageError, SupersededError, ConfigError, DivergedError: It could not be written.
        """
        with self._activity("saving"):
            self._settle(wait=True, tolerant=False)

    def finish_after(self, error: BaseException) -> None:
        """Like `finish`, but for a program that ends with `error`, so that a failure of the save only warns."""
        try:
            self.finish()
        except Exception as another:  # noqa: BLE001  (any failure is only a warning)
            warn(f"{another} (the run ends by {type(error).__name__})")

    def finish_last(self, where: Where, shared: Callable[[], StateDict], own: Callable[[], StateDict]) -> None:
        """Saves the last step of a training, unless it is saved already, and waits until the save is durable.

        The arguments and the errors are those of `reached`.
        """
        with self._activity("saving"):
            # A save of an earlier step may fail. If state is divided, all ranks have to save again, or none.
            self._settle(wait=True, tolerant=0 <= self.begun_step < where.step)
        if self.saves and self._durable != where.step:
            place = StatePlace(where.step, where.epoch, ends=True)
            self._save([f"last-{where.step}"], place, where, shared, lambda _: own, waits=True)
            self.finish()

    def _find(self, storage: CheckpointStorage[Any]) -> Found[StateDict] | None:
        found = storage.newest(
            self._decode, start_over=self._settings.start_over, retry_seconds=self._settings.retry_seconds
        )
        uid, before = self._settings.uid, found.manifest.lineage if found else ()
        lineage = extended_lineage(before, self._settings.attempt, storage.newest_attempt())
        self._manifest = replace(self._manifest, lineage=lineage)
        if found:
            self._check_found(found)
            led_here = dict.fromkeys((*found.manifest.ancestors, found.manifest.uid))
            ancestors = tuple(former for former in led_here if former != uid)
            self._manifest = replace(self._manifest, ancestors=ancestors)
            if found.manifest.uid == uid:
                storage.tidy(replace(self._manifest, step=found.manifest.step), found.location)
            else:
                former = found.manifest.uid or "none"
                say(f"{found.location} is from another job (uid {former}): this job resumes from it")
        return found

    def _decode(self, file: Path) -> StateDict:
        saved = decode(file)
        try:
            self._check_finite(saved["shared"])
        except DivergedError as error:
            raise BrokenError(str(error)) from error
        return saved

    def _save(
        self,
        names: list[str],
        place: StatePlace,
        where: Where,
        shared: Callable[[], StateDict],
        own: Callable[[str], Callable[[], StateDict]],
        *,
        waits: bool,
    ) -> None:
        """Begins to save. If the previous save is still being written, waits for it or skips this one.

        `names` are those of this save: all that the other ranks may have for it. `own` returns what makes the
        state for a name.
        """
        began = time.monotonic()
        self.saved_position = place.position
        try:
            self._begin(names, place, where, shared, own, waits=waits)
        except NotPlainError as error:
            warn(f"step {where.step} is not saved: {error}. {PLAIN}")
        except PositionError as error:
            if isinstance(self._writer, ShardedSaver):  # The other ranks are waiting for this one.
                raise
            warn(f"step {where.step} is not saved: {error}")
        self._schedule.begun(time.monotonic() - began)

    def _begin(
        self,
        names: list[str],
        place: StatePlace,
        where: Where,
        shared: Callable[[], StateDict],
        own: Callable[[str], Callable[[], StateDict]],
        *,
        waits: bool,
    ) -> None:
        manifest = replace(self._manifest, step=where.step, epoch=where.epoch, samples=where.samples)
        if isinstance(self._writer, ShardedSaver):
            with self._activity("saving"):
                self._settle(wait=True)  # No rank may skip a save in which others take part.
                self._writer.begin(
                    manifest, shared(), _with_random(own(names[-1])()), place.position, self._seconds()
                )
            self.begun_position = place.position
            return
        # Not as part of the activity: a rank that hangs meanwhile is missed as soon as in a step.
        self._send(names, place, own)
        if not self._writer:
            self.begun_position = place.position
            return
        if self._writer.busy and not waits and not self._settings.waits:
            self._schedule.make_up()
            self._skip(where.step)
            return
        gathered = partial(
            gather,
            self._agreement,
            self.world.world_size,
            name=names[-1] if place.ends else names[0],
            place=place,
            step=where.step,
            seconds=self._seconds(),
        )
        with self._activity("saving"):
            self._settle(wait=True)
            self._writer.begin(manifest, plain(shared()), gathered)
        self.begun_step, self.begun_position = where.step, place.position

    def _send(self, names: list[str], place: StatePlace, own: Callable[[str], Callable[[], StateDict]]) -> None:
        """Sends this rank's own state to rank 0, or why it cannot be saved."""
        makers = {name: own(name) for name in names}
        try:
            # Most names stand for the same state, which may be as large as the gradients.
            contents = {make: own_content(place, _with_random(make())) for make in dict.fromkeys(makers.values())}
        except (NotPlainError, PositionError) as error:
            self._agreement.send(names[0], no_content(place, str(error)), *names[1:])
            raise
        for make, content in contents.items():
            first, *others = (name for name in names if makers[name] is make)
            self._agreement.send(first, content, *others)

    def _seconds(self) -> float:
        """How long ranks wait for each other in the save that begins."""
        return self._settings.stop_seconds if self._stops else RANKS_SECONDS

    def _skip(self, step: int) -> None:
        if not self._skipped:
            warn(
                f"step {step} is not saved, because the previous save is still being written; training is saved as"
                " soon as that has ended. Save less often"
            )
            self._skipped = True

    def _settle(self, *, wait: bool, tolerant: bool = True) -> None:
        """Reports the save that is under way, if it is durable. `tolerant`: a failure for now only warns."""
        if not self._writer:
            return
        try:
            written = self._writer.finished(wait=wait)
        except RankUnsavableError as error:
            warn(str(error))
            return
        except (StorageError, PeerLostError) as error:
            # Not since the last save that was good: saves may be hours apart.
            self._failing_since = self._failing_since or time.monotonic()
            if not tolerant or time.monotonic() - self._failing_since > FAILING_SECONDS:
                raise
            agree = isinstance(error, StepsDifferError) and self._settings.every_steps is not None
            then = "the ranks agree on when to save from now on" if agree else "tries again when the next save is due"
            if self.world.leads:  # If state is divided, all ranks have this error.
                warn(f"{error}. Training goes on, and {then}")
            if agree and not self._schedule.agrees:
                self._schedule.agrees = True
                self._schedule.make_up()
            return
        except DivergedError as error:
            if self._settings.on_nonfinite == "stop":
                raise
            if self.world.leads:
                warn(f"no checkpoint is saved: {error}")
            return
        if not written:
            return
        self._failing_since, self._durable = None, written.manifest.step
        self._schedule.written(written.seconds)
        self._newest = _newest(written.manifest.step, written.location)
        if self.world.leads:
            record("saved", step=written.manifest.step, epoch=written.manifest.epoch, checkpoint=written.location)
            reporting.report(checkpoint=written.manifest.step)
            self._saved(written)


def _with_random(own: StateDict) -> StateDict:
    return {"random": random_state.capture()} | own


def _newest(step: int, location: str) -> str:
    return f"the newest checkpoint is that of step {step}, {location}"

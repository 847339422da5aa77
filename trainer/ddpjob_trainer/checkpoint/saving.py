"""Saves and resumes a run: decides when a checkpoint is due, and does each rank's part of saving and resuming.

Only rank 0 reads and writes checkpoints; it writes them while training goes on. The other ranks send the states of
their random generators to rank 0, and receive a checkpoint's bytes from it, so they need no access to the storage.
Each node has one copy of these bytes.
"""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from ddpjob import random_state
from ddpjob.checkpoint.checkpoint_storage import CheckpointStorage
from ddpjob.checkpoint.encoding import StateDict, decode
from ddpjob.checkpoint.finite import check_parameters
from ddpjob.checkpoint.interval import best_interval, expected_time_to_failure
from ddpjob.checkpoint.opening import open_storage
from ddpjob.checkpoint.reading import PATIENCE_SECONDS, Found
from ddpjob.checkpoint.writer import Writer
from ddpjob.group.collectives import broadcast_file, gather
from ddpjob_rank.console import record, say, warn
from ddpjob_rank.errors import CheckpointMissedError, ConfigError, DivergedError, StorageUnavailableError
from ddpjob_rank.manifests.manifest import Manifest, extended_lineage, new_run
from ddpjob_rank.manifests.unusable import BrokenError
from ddpjob_rank.reporting import report as reporting
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.world import World

from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.data.data_identity import UNKNOWN, DataIdentity
from ddpjob_trainer.model.learner import Learner
from ddpjob_trainer.options import AUTO, CheckpointConfig
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.recording.recorder import Recorder

from . import state

SEEN_TWICE = "some samples are seen twice, and others never"

OTHER_DATA_REMEDY = (
    "Go on with the same data, or name another --checkpoint-dir; with --allow-other-data training goes on with "
    "the present data"
)

PATIENCE_SHARE = 0.25
"""How long rank 0 keeps trying to read a checkpoint, as a fraction of the timeout of collectives."""


class Saver:
    """Saves and restores one run. Each rank makes the same calls in the same order."""

    def __init__(
        self,
        config: TrainConfig,
        settings: CheckpointConfig,
        world: World,
        global_batch: int,
        recorder: Recorder,
        *,
        data: DataIdentity = UNKNOWN,
        sound: Collection[str] = (),
    ) -> None:
        """`data` identifies the training data; `sound` names the parameters that must be finite in a checkpoint."""
        self._data = data
        self._sound = sound
        self._recorder = recorder
        self._config = config
        self._settings = settings
        self._world = world
        self._global_batch = global_batch
        self._storage = open_storage(settings.directory, settings.keep) if world.leads else None
        self._writer = Writer(self._storage, self._check_finite) if self._storage else None
        self._missed: CheckpointMissedError | None = None
        self._lineage: tuple[int, ...] = ()
        self._ancestors: tuple[str, ...] = ()
        self._run = new_run()
        self.saved_step: int | None = None
        """The step of the last save; None if this process has not saved yet."""
        self._requested = False
        self._saved_at = time.monotonic()
        self._cost: float | None = None
        self._writing = 0.0

    def _check_finite(self, shared: StateDict) -> None:
        check_parameters(shared["model"], self._sound)

    def resume(self, position: Position) -> StateDict | None:
        """Sets the position to that of the newest valid checkpoint, and returns its state; None if there is none.

        Raises:
            CheckpointUnusableError, StorageUnavailableError: A checkpoint cannot be used, or cannot be read now.
            ConfigError: The checkpoint was saved with other data.
        """
        found = self._find(self._storage) if self._storage else None
        try:
            content = broadcast_file(found.content if found else None, self._world)
        except OSError as error:
            raise StorageUnavailableError(f"{found and found.location} cannot be read: {error.strerror}") from error
        if found:
            record("resumed", step=found.manifest.step, epoch=found.manifest.epoch, checkpoint=found.location)
        if content is None:
            reporting.report(resumed=0)
            if self._settings.start_over:
                reporting.starts_over()
            return None
        decoded = found.state if found else decode(content.path)
        position.step, position.epoch, position.samples = decoded["position"]
        reporting.report(resumed=position.step)
        return decoded

    def _find(self, storage: CheckpointStorage[Any]) -> Found[StateDict] | None:
        # The others wait in a collective. If it timed out, one of them would seem to be the rank that failed.
        retry_seconds = min(PATIENCE_SECONDS, self._config.group.collective_seconds * PATIENCE_SHARE)
        found = storage.newest(self._decode, start_over=self._settings.start_over, retry_seconds=retry_seconds)
        before = found.manifest.lineage if found else ()
        self._lineage = extended_lineage(before, self._config.attempt, storage.newest_attempt())
        if found:
            self._compare(found)
            led_here = dict.fromkeys((*found.manifest.ancestors, found.manifest.uid))
            self._ancestors = tuple(uid for uid in led_here if uid != self._config.uid)
            if found.manifest.uid == self._config.uid:
                storage.tidy(self._manifest(Position(step=found.manifest.step)), found.location)
            else:
                say(
                    f"{found.location} is from another job (uid {found.manifest.uid or 'none'}): this job resumes"
                    " from it"
                )
        return found

    def _compare(self, found: Found[StateDict]) -> None:
        """Refuses to train on other data than the checkpoint's, unless this is allowed. Logs any other differences.

        Raises:
            ConfigError: The data differs, and `--allow-other-data` is not given.
        """
        then, now = found.manifest, self._data
        within_epoch = now.within_epoch(then.samples, self._global_batch)
        if differences := _data_of(then).differences(now):
            problem = f"checkpoint {found.location} was saved with other data: {'; '.join(differences)}"
            if not self._settings.allow_other_data:
                raise ConfigError(f"{problem}. {OTHER_DATA_REMEDY}")
            warn(f"{problem}{f'. In the rest of epoch {then.epoch} {SEEN_TWICE}' if within_epoch else ''}")
        elif then.seed is None and within_epoch:
            warn(
                f"checkpoint {found.location} is from an older version, which ordered an epoch differently. In "
                "the rest of"
                f" epoch {then.epoch} {SEEN_TWICE}"
            )
        if then.globalBatchSize != self._global_batch:
            say(
                f"a step now takes {self._global_batch} samples across all processes, not {then.globalBatchSize} as"
                " before"
            )

    def _decode(self, file: Path) -> StateDict:
        decoded = decode(file)
        try:
            self._check_finite(decoded["shared"])
        except DivergedError as error:
            raise BrokenError(str(error)) from error
        return decoded

    def restore(self, learner: Learner, saved: StateDict, step: int, device: torch.device) -> None:
        """Restores the weights and all other state that determines the next steps, from a checkpoint of `step`."""
        ranks = saved["ranks"]
        differing = state.load(learner, saved["shared"], step)
        if differing and self._world.leads:
            say(f"the optimizer keeps the settings of the checkpoint: {'; '.join(differing)}")
        state.load_compression(learner, ranks, self._world, device)
        if len(ranks) == self._world.world_size:
            random_state.restore(ranks[self._world.rank]["random"])
            return
        random_state.seed_all(self._config.seed, self._world.rank, step)
        if self._world.leads:
            say(
                f"the number of processes changed from {len(ranks)} to {self._world.world_size}: weights,"
                " optimizer and position are kept, random generators are reseeded"
            )

    def check(self, learner: Learner) -> None:
        """Checks before the first step that the learner's state can be saved.

        Raises:
            ConfigError: It cannot.
        """
        state.shared(learner)

    def request(self) -> None:
        """Makes `wish` return SAVE until the next save begins. Any thread may call this."""
        self._requested = True

    def wish(self) -> Wish:
        """Returns SAVE if a save was requested here, or the interval in seconds has passed.

        Only rank 0 looks at the interval, so that a single clock decides.
        """
        every = self._every_seconds()
        due = self._world.leads and every is not None and time.monotonic() - self._saved_at >= every
        return Wish.SAVE if due or self._requested else Wish.NOTHING

    def due(self, step: int, *, epoch_ends: bool) -> bool:
        """Whether a checkpoint is due after this step, because of the step's number or because the epoch ends."""
        if self._settings.every_steps is not None:
            return step % self._settings.every_steps == 0
        return epoch_ends and self._settings.every_seconds is None

    def save(
        self,
        learner: Learner,
        position: Position,
        begin: Callable[[str], None],
        *,
        heard_from_all: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins to save the present state: copies it now. `settle` or `finish` must be called later.

        Args:
            learner: The state to save, as it is at `position`.
            position: Where the run is.
            begin: Called with "saving" before the part of a save that may take longer than a step. Usually this part
                does not include the gathering of the ranks' own states. Until "saving", the supervisor notices a
                missing rank as fast as during a step.
            heard_from_all: Called when all ranks have taken part in the gathering. If it raises, nothing is saved.

        Raises:
            TrainerError: The previous save, which must end first, has failed; see `settle`.
        """
        began = time.monotonic()
        self._requested = False
        if learner.compression:  # Each rank sends as many bytes as its gradients have, which takes time.
            begin("saving")
        of_ranks = gather(state.of_rank(learner), self._world)
        heard_from_all()
        begin("saving")
        if self._writer:
            self._tell(wait=True)
            self._missed = None
            self._writer.begin(self._manifest(position), state.shared(learner), lambda: of_ranks)
        self._saved_at, self.saved_step = time.monotonic(), position.step
        self._cost = self._saved_at - began

    def settle(self) -> None:
        """Reports the save that is under way if it has become durable. Does not wait for it.

        If an object store did not take it, that is only a warning: the next save may succeed.

        Raises:
            StorageFullError, StorageError: The save could not be written.
            SupersededError: A later run has taken over.
            ConfigError: This user may not write to the directory, or the save could not be read back.
        """
        self._tell(wait=False)

    def finish(self) -> None:
        """Waits until the last save is durable, and reports it.

        Raises:
            CheckpointMissedError: An object store did not take it.
            TrainerError: As `settle`.
        """
        self._tell(wait=True)
        if self._missed:
            raise self._missed

    def finish_after(self, error: Exception) -> None:
        """Like `finish`, but for a run that ends with `error`, so that a failure of the save is only a warning."""
        try:
            self.finish()
        except Exception as another:  # noqa: BLE001  (any failure is only a warning)
            warn(f"{another} (the run ends by {type(error).__name__})")

    def _tell(self, *, wait: bool) -> None:
        try:
            written = self._writer.finished(wait=wait) if self._writer else None
        except CheckpointMissedError as error:
            self._missed = error
            warn(f"{error}; training goes on, and tries again when the next save is due")
            return
        if written:
            self._writing = written.seconds
            step, epoch = written.manifest.step, written.manifest.epoch
            record("saved", step=step, epoch=epoch, checkpoint=written.location)
            reporting.report(checkpoint=step)
            self._recorder.add("saved", step, epoch=epoch, checkpoint=str(written.location), seconds=written.seconds)

    def _every_seconds(self) -> float | None:
        every = self._settings.every_seconds
        if every != AUTO:
            return every
        known = self._settings.mean_time_to_failure
        nodes = self._world.world_size // self._world.local_world_size
        return best_interval(known or expected_time_to_failure(nodes), self._cost, self._writing)

    def _manifest(self, position: Position) -> Manifest:
        return Manifest(
            step=position.step,
            epoch=position.epoch,
            samples=position.samples,
            worldSize=self._world.world_size,
            globalBatchSize=self._global_batch,
            uid=self._config.uid,
            lineage=self._lineage,
            arguments=self._config.arguments,
            run=self._run,
            ancestors=self._ancestors,
            seed=self._data.seed,
            dataLength=self._data.length,
            dataFingerprint=self._data.fingerprint,
        )


def _data_of(manifest: Manifest) -> DataIdentity:
    return DataIdentity(manifest.seed, manifest.dataLength, manifest.dataFingerprint)

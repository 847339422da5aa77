"""Saving and resuming: when a checkpoint is due, and what all ranks do for it.

Rank 0 alone reads and writes files. The others send it their random states and get a checkpoint's bytes from it, so
they need not see the directory.
"""

import time

from ddpjob_trainer.collectives import broadcast_bytes, gather
from ddpjob_trainer.config import CheckpointConfig, TrainConfig
from ddpjob_trainer.console import record, say
from ddpjob_trainer.position import Position
from ddpjob_trainer.world import World

from . import random_state, state
from .agreement import Wish
from .checkpoint import Checkpoints, Manifest
from .order import Order


class Saver:
    """Saves and restores one run; the same calls in the same order on each rank."""

    def __init__(self, config: TrainConfig, settings: CheckpointConfig, world: World, order: Order) -> None:
        self._config = config
        self._settings = settings
        self._world = world
        self._order = order
        self._files = Checkpoints(settings.directory, settings.keep) if world.leads else None
        self._lineage: tuple[int, ...] = ()
        self._saved_at = time.monotonic()
        self._proved = False

    def resume(self, position: Position) -> state.State | None:
        """Moves the position to the newest valid checkpoint's and gives its state; None if there is none."""
        found = self._files.newest(readable=state.decode) if self._files else None
        content = broadcast_bytes(found.content if found else None, self._world)
        if found:
            self._lineage = found.manifest.lineage
            record("resumed", step=found.manifest.step, epoch=found.manifest.epoch, checkpoint=found.path)
        if content is None:
            return None
        decoded = state.decode(content)
        position.step, position.epoch, position.samples = decoded["position"]
        return decoded

    def wish(self) -> Wish:
        """Whether enough time has passed: by rank 0's clock, since only one clock can decide."""
        every = self._settings.every_seconds
        due = self._world.leads and every is not None and time.monotonic() - self._saved_at >= every
        return Wish.SAVE if due else Wish.NOTHING

    def due(self, step: int, *, epoch_ends: bool) -> bool:
        """Whether a checkpoint is due after a step by its number."""
        if self._settings.every_steps is not None:
            return step % self._settings.every_steps == 0
        return epoch_ends and self._settings.every_seconds is None

    def save(self, learner: state.Learner, position: Position) -> None:
        """Saves the run as it is.

        Raises:
            StorageFullError: On rank 0, where there is no room.
            ConfigError: On rank 0, where the state could not be read back.
        """
        random_states = gather(random_state.capture(), self._world)
        if self._files:
            where = (position.step, position.epoch, position.samples)
            content = state.encode(learner, random_states, where)
            if not self._proved:
                state.prove(content)
                self._proved = True
            path = self._files.write(self._manifest(position), content)
            record("saved", step=position.step, epoch=position.epoch, checkpoint=path)
        self._saved_at = time.monotonic()

    def _manifest(self, position: Position) -> Manifest:
        mine = self._config.incarnation
        if self._lineage[-1:] != (mine,):
            self._lineage = (*self._lineage, mine)
        return Manifest(
            step=position.step,
            epoch=position.epoch,
            samples=position.samples,
            worldSize=self._world.world_size,
            globalBatchSize=self._order.global_batch,
            uid=self._config.uid,
            lineage=self._lineage,
        )


def restore_random(saved: list[random_state.State], config: TrainConfig, world: World, step: int) -> None:
    """Gives each rank its generators back; in a world of another size, new ones."""
    if len(saved) == world.world_size:
        random_state.restore(saved[world.rank])
        return
    random_state.seed_all(config.seed, world.rank, step)
    if world.leads:
        say(
            f"the number of processes changed from {len(saved)} to {world.world_size}: weights, optimizer and"
            " position are kept, random generators are seeded anew"
        )

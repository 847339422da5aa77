"""A store in which rank 0 writes what is next and all ranks their results. A rank that reaches it is present."""

import dataclasses
import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.failure.failure_report import last_line
from ddpjob_rank.places.master import await_rank_0
from ddpjob_rank.world import World
from ddpjob_supervisor.preflight.findings import PreflightError
from torch.distributed.distributed_c10d import Store

from .plan import Outcome

_KEPT: list[object] = []


class TrialStore:
    """One rank's view of it. Entries have numbers, and for each there is an outcome of each rank.

    Raises:
        PreflightError: Rank 0 does not answer within this many seconds.
    """

    def __init__(self, world: World, seconds: float) -> None:
        self._rank = world.rank
        self._number = -1
        timeout = timedelta(seconds=seconds)
        try:
            await_rank_0(world, timeout)
            self._store = _store(world, timeout, serves=False)
        except PeerLostError as error:
            raise PreflightError(f"rank {world.rank} {error}", (0,)) from error
        except dist.DistError as error:
            raise PreflightError(f"rank {world.rank} lost rank 0 at once: {last_line(error)}", (0,)) from error

    def announce(self, entry: dict[str, Any]) -> None:
        """Writes what is next."""
        self._number += 1
        self._store.set(f"entry/{self._number}", json.dumps(entry))

    def next_step(self, seconds: float) -> dict[str, Any]:
        """Waits for what is next, for at most this many seconds.

        Raises:
            PeerLostError: Rank 0 is gone.
        """
        self._number += 1
        key = f"entry/{self._number}"
        try:
            self._store.wait([key], timedelta(seconds=seconds))
            entry: dict[str, Any] = json.loads(self._store.get(key))
        except dist.DistError as error:
            raise PeerLostError(f"lost rank 0 in preflight: {last_line(error)}") from error
        return entry

    def answer(self, outcome: Outcome) -> None:
        """Writes this rank's result.

        Raises:
            PeerLostError: Rank 0 is gone.
        """
        try:
            self._store.set(f"outcome/{self._number}/{self._rank}", json.dumps(dataclasses.asdict(outcome)))
        except dist.DistError as error:
            raise PeerLostError(f"lost rank 0 in preflight: {last_line(error)}") from error

    def outcomes(self, ranks: Iterable[int], seconds: float) -> dict[int, Outcome]:
        """The results of these ranks; without those that have not given one within this many seconds."""
        keys = {rank: f"outcome/{self._number}/{rank}" for rank in ranks}
        try:
            self._store.wait(list(keys.values()), timedelta(seconds=seconds))
        except dist.DistStoreError:
            keys = {rank: key for rank, key in keys.items() if self._store.check([key])}
        return {rank: Outcome(**json.loads(self._store.get(key))) for rank, key in keys.items()}


def serve(world: World, seconds: float) -> Outcome:
    """Serves the store as long as this process lives."""
    _KEPT.append(_store(world, timedelta(seconds=seconds), serves=True))
    return Outcome()


def _store(world: World, timeout: timedelta, *, serves: bool) -> Store:
    return dist.TCPStore(  # type: ignore[attr-defined]
        world.master_addr, world.master_port, is_master=serves, timeout=timeout, wait_for_workers=False
    )

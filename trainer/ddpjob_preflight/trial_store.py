"""The store into which rank 0 writes the steps, and each rank writes its results."""

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
    """One rank's connection to the store. Entries are numbered, and each rank writes an outcome for each entry.

    Raises:
        PreflightError: Rank 0 does not answer within `seconds`.
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
            raise PreflightError(f"rank {world.rank} lost rank 0 immediately: {last_line(error)}", (0,)) from error

    def announce(self, entry: dict[str, Any]) -> None:
        """Writes the next entry: a step, or the findings at the end. Only rank 0 calls this."""
        self._number += 1
        self._store.set(f"entry/{self._number}", json.dumps(entry))

    def next_step(self, seconds: float) -> dict[str, Any]:
        """Waits for the next entry, for at most `seconds`.

        Raises:
            PeerLostError: Rank 0 cannot be reached any more, or has not written an entry in time.
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
        """Writes this rank's outcome of the present entry.

        Raises:
            PeerLostError: Rank 0 cannot be reached any more.
        """
        try:
            self._store.set(f"outcome/{self._number}/{self._rank}", json.dumps(dataclasses.asdict(outcome)))
        except dist.DistError as error:
            raise PeerLostError(f"lost rank 0 in preflight: {last_line(error)}") from error

    def outcomes(self, ranks: Iterable[int], seconds: float) -> dict[int, Outcome]:
        """The outcomes of the present entry, by rank; only those that are written within `seconds`."""
        keys = {rank: f"outcome/{self._number}/{rank}" for rank in ranks}
        try:
            self._store.wait(list(keys.values()), timedelta(seconds=seconds))
        except dist.DistStoreError:
            keys = {rank: key for rank, key in keys.items() if self._store.check([key])}
        return {rank: Outcome(**json.loads(self._store.get(key))) for rank, key in keys.items()}


def serve(world: World, seconds: float) -> Outcome:
    """Serves the store for as long as this process lives."""
    _KEPT.append(_store(world, timedelta(seconds=seconds), serves=True))
    return Outcome()


def _store(world: World, timeout: timedelta, *, serves: bool) -> Store:
    return dist.TCPStore(  # type: ignore[attr-defined]
        world.master_addr, world.master_port, is_master=serves, timeout=timeout, wait_for_workers=False
    )

"""Lets all ranks begin a save together, or none of them."""

import time

import torch.distributed as dist
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.pauses import longer_pauses
from ddpjob_rank.reporting.agreement_warnings import ranks
from ddpjob_rank.world import World, restart_of_torchrun
from torch.distributed.distributed_c10d import PrefixStore, _get_process_group_store

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 1.0
"""How often a rank looks whether the others have come: less and less often."""

GO = "go"


class CommonStart:
    """Has all ranks wait for each other before the first collective of a save.

    A collective does not end before all ranks have called it, and a rank that calls one more or one less than the
    others is behind them for ever. So each rank first writes its position into the store of the group. Rank 0 decides
    whether all of them are at the same position, and whoever has waited for too long decides that they are not. The
    first decision counts.
    """

    def __init__(self, group: dist.ProcessGroup, world: World) -> None:
        """Uses the store of a group of all ranks, which is not used for anything else."""
        self._store = PrefixStore(f"start/{restart_of_torchrun()}", _get_process_group_store(group))
        self._world = world
        self._tried = (-1, 0)
        """The last position, and how often this rank has come to it."""

    def await_all(self, position: int, seconds: float) -> None:
        """Waits until all ranks have come to the save at a position.

        Raises:
            PeerLostError: A rank is elsewhere, or has not come within `seconds`. All ranks at this position raise it.
        """
        self._tried = position, self._tried[1] + 1 if self._tried[0] == position else 1
        decision = "decision/{}/{}".format(*self._tried)
        try:
            self._store.set(_place(self._world.rank), str(position))
            said = self._store.compare_set(decision, "", self._wait(decision, position, seconds)).decode()
        except RuntimeError as error:
            raise PeerLostError(f"rank 0 was lost before all ranks had come to a save: {error}") from error
        if said != GO:
            raise PeerLostError(f"{said}, so this step is not saved")

    def _wait(self, decision: str, position: int, seconds: float) -> str:
        """What this rank decides, unless another has decided before."""
        # The others wait longer, because only rank 0 knows who is missing.
        until = time.monotonic() + (seconds if self._world.leads else 2 * seconds)
        for pause in longer_pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            if self._store.check([decision]):
                break
            if found := self._found(position):
                return found
            if time.monotonic() >= until:
                return self._missing(position, seconds)
            time.sleep(pause)
        return GO

    def _found(self, position: int) -> str | None:
        """GO, or why the ranks will not meet; None as long as they may."""
        if not self._world.leads:
            (first,) = self._positions([0])
            passed = first is not None and first > position
            return f"rank {self._world.rank} is at another step than rank 0" if passed else None
        positions = self._positions(range(self._world.world_size))
        if apart := [rank for rank, where in enumerate(positions) if where is not None and where > position]:
            return f"{ranks(apart, 'is')} at another step than rank 0"
        return GO if all(where == position for where in positions) else None

    def _missing(self, position: int, seconds: float) -> str:
        if not self._world.leads:
            return f"rank 0 has not come to the save at which rank {self._world.rank} is"
        positions = self._positions(range(self._world.world_size))
        missing = [rank for rank, where in enumerate(positions) if where != position]
        return f"{ranks(missing, 'has')} not come to the save within {seconds:.0f} s"

    def _positions(self, of: range | list[int]) -> list[int | None]:
        keys = [_place(rank) for rank in of]
        if self._store.check(keys):
            return [int(value) for value in self._store.multi_get(keys)]
        return [int(self._store.get(key)) if self._store.check([key]) else None for key in keys]


def _place(rank: int) -> str:
    return f"position/{rank}"

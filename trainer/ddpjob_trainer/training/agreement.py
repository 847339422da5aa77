"""How all ranks come to the same decision at the same step, at next to no cost.

Now and then every rank proposes a wish; the proposals are compared beside the next step, and after it all read the
greatest of them. So all see the same wish at the same step, and none waits for a message. A comparison costs about a
millisecond if processes share cores, so short steps do not all have one: rank 0 measures the pace, and its proposal
says after how many steps the next ones are due.

Besides its wish each rank adds how long its own part of a step takes: so rank 0 knows which one is slow without
gathering anything.
"""

import time
from collections.abc import Callable
from enum import IntEnum

import torch
import torch.distributed as dist

from ddpjob_trainer.world import World

PERIOD_SECONDS = 0.2
"""How long a wish may wait for the next comparison, if steps are shorter than that."""

MICROSECONDS = 1_000_000
MOST_TIME = 2**31 - 1
"""In microseconds: the most that a proposal can hold."""

MOST_STEPS = 200
"""Between comparisons, in case steps suddenly become long."""


class Wish(IntEnum):
    """What a rank may want after a step; the greatest one is granted."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


class Agreement:
    """The ranks' common decision; the same calls in the same order on each of them."""

    def __init__(self, world: World) -> None:
        self.own_seconds: list[float] = []
        """Each rank's own part of a step, as of the last comparison; 0: unknown. Empty before the first."""
        self._world = world
        self._proposals = torch.zeros(2 + world.world_size, dtype=torch.int32)
        self._comparison: dist.Work | None = None
        self._proposed = False
        self._steps_left = 1
        self._steps, self._since = 0, time.monotonic()

    def granted(self) -> Wish:
        """What all agreed on, once after each comparison; call it after every step."""
        self._steps += 1
        self._steps_left -= 1
        if not self._proposed:
            return Wish.NOTHING
        if self._comparison is not None:
            self._comparison.wait()
        self._proposed, self._comparison = False, None
        wish, steps, *times = self._proposals.tolist()
        self.own_seconds = [microseconds / MICROSECONDS for microseconds in times]
        self._steps_left = steps - 1
        return Wish(wish)

    def propose(self, wish: Callable[[], Wish], own_seconds: float = 0.0) -> None:
        """Proposes what this rank wants, and how long its own part of a step takes, if proposals are due."""
        if self._steps_left > 0:
            return
        times = [0] * self._world.world_size
        times[self._world.rank] = min(MOST_TIME, round(own_seconds * MICROSECONDS))
        pace = self._pace() if self._world.leads else 0
        self._proposals = torch.tensor([wish(), pace, *times], dtype=torch.int32)
        self._proposed = True
        if not self._world.alone:
            self._comparison = dist.all_reduce(self._proposals, dist.ReduceOp.MAX, async_op=True)

    def _pace(self) -> int:
        """Steps within a period, as fast as they were since the last proposal."""
        now = time.monotonic()
        seconds_per_step = (now - self._since) / max(1, self._steps)
        self._steps, self._since = 0, now
        return min(MOST_STEPS, max(1, int(PERIOD_SECONDS / seconds_per_step)))

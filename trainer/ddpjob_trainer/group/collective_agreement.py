"""Lets all ranks come to the same decision after the same step, at almost no cost.

From time to time each rank proposes a wish. Rank 0 gathers the proposals during the next step, and broadcasts the
greatest wish during the step after that. So all ranks get the same wish at the same step, and no rank waits for a
message.

Both exchanges together cost about a millisecond if processes share cores, which is too much for every step if steps
are short. Therefore rank 0 measures how long steps take, and also broadcasts the number of steps until the next
proposals. If that number is 1, steps are long; then all ranks wait for the broadcast before they make another step.

With its wish each rank sends how long its own part of a step takes, so that rank 0 can tell which rank is slow.
"""

import time
from collections.abc import Callable
from enum import Enum

import torch
import torch.distributed as dist
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.world import World

PERIOD_SECONDS = 0.2
"""Seconds between two comparisons of wishes, if steps are shorter than that."""

PERIOD_SECONDS_OF_A_RANK = 0.0005
"""The period is at least this long per rank. A proposal, which costs rank 0 35 microseconds, takes only 7% of it."""

MICROSECONDS = 1_000_000
MOST_TIME = 2**31 - 1
"""The longest time that a proposal can contain, in microseconds."""

MOST_STEPS = 200
"""The maximum number of steps between two comparisons, in case steps suddenly take longer."""


class _Stage(Enum):
    """The stages of a comparison of wishes."""

    NONE = 0
    PROPOSED = 1
    DECIDED = 2


class CollectiveAgreement:
    """The ranks' common decision. Each rank makes the same calls in the same order."""

    def __init__(self, world: World) -> None:
        self.rank_seconds: list[float] = []
        """On rank 0, the time of each rank's own part of a step at the last comparison (0 if unknown). Empty before
        the first comparison."""
        self._world = world
        self._period = max(PERIOD_SECONDS, world.world_size * PERIOD_SECONDS_OF_A_RANK)
        self._stage = _Stage.NONE
        self._exchange: dist.Work | None = None
        self._proposal = torch.zeros(2, dtype=torch.int32)
        """This rank's wish, and the time of its own part of a step in microseconds."""
        self._proposals = torch.zeros(world.world_size if world.leads else 0, 2, dtype=torch.int32)
        self._rows = list(self._proposals.unbind()) or None
        """On rank 0, each rank's proposal, as a row of `_proposals`; None on the others."""
        self._decision = torch.ones(2, dtype=torch.int32)
        """The decided wish, and the number of steps until the next proposals."""
        self._steps_left = 1
        self._steps, self._since = 0, time.monotonic()

    def decision(self) -> Wish:
        """Returns a new decision of all ranks or, if there is none, NOTHING. Call it after every step."""
        self._steps += 1
        self._steps_left -= 1
        if self._stage is _Stage.PROPOSED:
            steps_are_short = int(self._decision[1]) > 1
            self._decide()
            if steps_are_short and not self._world.alone:
                return Wish.NOTHING
        return self._decided() if self._stage is _Stage.DECIDED else Wish.NOTHING

    def propose(self, wish: Callable[[], Wish], busy_seconds: float = 0.0) -> None:
        """If proposals are due, sends this rank's wish, and how long its own part of a step takes."""
        if self._steps_left > 0 or self._stage is not _Stage.NONE:
            return
        self._steps_left = 0
        microseconds = min(MOST_TIME, round(busy_seconds * MICROSECONDS))
        self._proposal = torch.tensor([wish(), microseconds], dtype=torch.int32)
        self._stage = _Stage.PROPOSED
        if self._world.alone:
            self._proposals[0] = self._proposal
        else:
            self._exchange = dist.gather(self._proposal, self._rows, async_op=True)

    def finish(self) -> None:
        """Completes a comparison that is under way. Call it after the last step, before leaving the group."""
        if self._stage is _Stage.PROPOSED:
            self._decide()
        if self._stage is _Stage.DECIDED:
            self._decided()

    def _decide(self) -> None:
        """Waits until rank 0 has all proposals, and begins to broadcast the decision."""
        self._await()
        self._stage = _Stage.DECIDED
        if self._world.leads:
            wishes, times = self._proposals.T.tolist()
            self.rank_seconds = [microseconds / MICROSECONDS for microseconds in times]
            self._decision = torch.tensor([max(wishes), self._pace()], dtype=torch.int32)
        if not self._world.alone:
            self._exchange = dist.broadcast(self._decision, src=0, async_op=True)

    def _decided(self) -> Wish:
        self._await()
        self._stage = _Stage.NONE
        wish, steps = self._decision.tolist()
        self._steps_left += steps
        return Wish(wish)

    def _await(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.wait()

    def _pace(self) -> int:
        """How many steps fit into a period, at the pace since the last decision."""
        now = time.monotonic()
        seconds_per_step = (now - self._since) / max(1, self._steps)
        self._steps, self._since = 0, now
        return min(MOST_STEPS, max(1, int(self._period / seconds_per_step)))

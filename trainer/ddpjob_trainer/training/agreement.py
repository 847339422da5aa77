"""How all ranks come to the same decision at the same step without waiting for each other.

After each step every rank proposes a wish; the proposals are compared beside the next step, and after it all read
the greatest of them. So all see the same wish at the same step, one step late, and nobody waits for its message.
"""

from enum import IntEnum

import torch
import torch.distributed as dist

from ddpjob_trainer.world import World


class Wish(IntEnum):
    """What a rank may want after a step; the greatest one is granted."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


class Agreement:
    """The ranks' common will; the same calls in the same order on each of them."""

    def __init__(self, world: World) -> None:
        self._alone = world.alone
        self._word = torch.tensor([Wish.NOTHING], dtype=torch.int32)
        self._comparison: dist.Work | None = None

    def propose(self, wish: Wish) -> None:
        """Puts in what this rank wants."""
        self._word = torch.tensor([wish], dtype=torch.int32)
        if not self._alone:
            self._comparison = dist.all_reduce(self._word, dist.ReduceOp.MAX, async_op=True)

    def granted(self) -> Wish:
        """What all agreed on by the last proposals."""
        if self._comparison is not None:
            self._comparison.wait()
            self._comparison = None
        return Wish(int(self._word.item()))

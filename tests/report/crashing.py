"""A task of which one rank fails once."""

import os

from ddpjob_examples.convnet import ConvNetTask
from torch import Tensor


class Crashing(ConvNetTask):
    """Rank 1 of the first attempt, in the middle; its steps last long enough to be timed."""

    calls = 0

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        if os.environ["RANK"] == "1" and os.environ["DDPJOB_ATTEMPT"] == "1" and self.calls == 60:
            raise RuntimeError("<b>shard</b> 3 is empty")
        return super().loss(output, target)

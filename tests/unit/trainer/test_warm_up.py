"""The pass before the first step, of which nothing may be left."""

import random
from contextlib import nullcontext

import numpy as np
import torch
from ddpjob import random_state
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.model.parallel import warm_up
from torch import Tensor, nn

from tests.training.tasks import Noisy


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002  (the global one is meant)


class Assigning(nn.Module):
    """Keeps what it has seen in buffers that it does not write into: it puts others in their place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("first", None)

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        self.first = x.detach().mean() if self.first is None else self.first
        return x


def test_it_leaves_no_trace_in_weights_buffers_gradients_and_random_generators() -> None:
    task = Noisy(TrainConfig())
    model = nn.Sequential(task.model(), nn.Dropout(0.5), Assigning())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_state.seed_all(7)
    expected = drawn()
    random_state.seed_all(7)
    warm_up(model, task, iter([task.images.train[:8]]), nullcontext)
    assert drawn() == expected
    after = model.state_dict()
    assert [name for name in after if name not in before or not torch.equal(after[name], before[name])] == []
    assert [parameter.grad for parameter in model.parameters()] == [None] * len(list(model.parameters()))

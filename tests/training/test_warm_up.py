"""The pass before the first step, of which nothing may be left."""

import random
from contextlib import nullcontext

import numpy as np
import torch
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.training import random_state
from ddpjob_trainer.training.parallel import warm_up
from torch import nn

from tests.training.tasks import Noisy


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002  (the global one is meant)


def test_it_leaves_no_trace_in_weights_buffers_gradients_and_random_generators() -> None:
    task = Noisy(TrainConfig())
    model = nn.Sequential(task.model(), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random_state.seed_all(7)
    expected = drawn()
    random_state.seed_all(7)
    warm_up(model, task, iter([task.images.train[:8]]), nullcontext)
    assert drawn() == expected
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [parameter.grad for parameter in model.parameters()] == [None] * len(list(model.parameters()))

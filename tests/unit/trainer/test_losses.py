"""Losses are read only where that waits for nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddpjob.training.losses import Losses
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial


@pytest.fixture
def mesh() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("loss", "known"),
    [
        (0.5, (3, 0.5)),
        (torch.tensor([[0.5]], requires_grad=True), (3, 0.5)),
        (torch.tensor([0.5, 0.5]), None),
        (torch.empty((), device="meta"), None),
    ],
    ids=["a number", "a tensor on the CPU", "several numbers", "on a device that would be waited for"],
)
def test_a_loss_is_known_at_once_or_left_out(loss: Any, known: tuple[int, float] | None) -> None:
    assert Losses().note(3, loss) == known


def test_of_a_loss_that_is_divided_only_this_ranks_part_is_read(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = DTensor.from_local(torch.tensor(0.5), mesh, [Partial()])
    monkeypatch.setattr(DTensor, "detach", pytest.fail)  # Whatever reads a DTensor may take a collective.
    assert Losses().note(3, loss) == (3, 0.5)

"""Losses are read only where that waits for nothing."""

import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

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
        (0.5, 0.5),
        (torch.tensor([[0.5]], requires_grad=True), 0.5),
        (torch.tensor([0.5, 0.5]), None),
        (torch.empty((), device="meta"), None),
    ],
    ids=["a number", "a tensor on the CPU", "several numbers", "on a device that would be waited for"],
)
def test_a_loss_is_known_at_once_or_left_out(loss: Any, known: float | None) -> None:
    assert Losses().note(3, loss) == known


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (torch.rand(32), "it has 32 numbers, not one. Pass their mean: training.step(loss.mean())"),
        ("x", "it is of type str, not a number"),
        ([0.5], "it is of type list, not a number"),
        (10**400, "it is of type int, not a number"),
        (torch.tensor(0.5j), "it is of type Tensor, not a number"),
    ],
    ids=["many numbers", "a string", "a list", "too large a number", "a complex number"],
)
def test_why_a_loss_is_left_out_is_said_once(loss: Any, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses = Losses()
    assert [losses.note(step, loss) for step in (1, 2)] == [None, None]
    assert capsys.readouterr().err.count(f"training.step(loss): the loss is left out, because {why}\n") == 1


def test_the_first_loss_that_is_not_finite_is_kept() -> None:
    losses = Losses()
    for step, loss in enumerate((0.5, math.inf, math.nan, 0.5)):
        losses.note(step, torch.tensor(loss))
    assert losses.nonfinite == (1, math.inf)


class OnSecondGpu(torch.Tensor):
    """A tensor that claims to be on the second GPU, while the first is the present one."""

    is_cpu, is_cuda, device = False, True, torch.device("cuda", 1)

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, arguments: Any = (), known: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(known or {}))


def test_a_loss_on_another_gpu_than_the_present_one_is_read_once_that_gpu_has_copied_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    awaited: list[torch.device] = []
    event = Mock(record=awaited.append, query=lambda: False)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: device)
    monkeypatch.setattr(torch, "empty", lambda size, dtype, **_: torch.zeros(size, dtype=dtype))
    losses = Losses()
    losses.note(3, torch.tensor(0.5).as_subclass(OnSecondGpu))
    assert awaited == [OnSecondGpu.device]


def test_of_a_loss_that_is_divided_only_this_ranks_part_is_read(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = DTensor.from_local(torch.tensor(0.5), mesh, [Partial()])
    monkeypatch.setattr(DTensor, "detach", pytest.fail)  # Whatever reads a DTensor may take a collective.
    assert Losses().note(3, loss) == 0.5

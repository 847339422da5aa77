"""What a group of ranks does by settings for which PyTorch has had several names."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddpjob_rank.places.flags import PlaceConfig
from ddpjob_rank.reporting.agreement import Wish
from ddpjob_rank.reporting.group_agreement import agreement_of_group
from ddpjob_rank.world import World
from ddpjob_trainer import options
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.group import joining
from ddpjob_trainer.model.parallel import parallel
from ddpjob_trainer.options import CommunicationConfig, GroupConfig
from torch import Tensor, nn

from tests.support.waiting import patience
from tests.training.forking import FORKS

CPU = torch.device("cpu")
COLLECTIVE_SECONDS = 2.0
TIMES = 20
WISHED_AFTER = 5


class Shifted(nn.Module):
    """Its output depends on its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.register_buffer("running_mean", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Any:
        return self.linear(inputs) + self.running_mean


def results(directory: Path, do: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `do` returns in each of two ranks that are to join."""
    told = FORKS.Queue()
    worlds = [World(rank, rank, 2, 2) for rank in range(2)]
    arguments = (told, do, arguments)
    ranks = [FORKS.Process(target=_do, args=(world, directory, *arguments), daemon=True) for world in worlds]
    for rank in ranks:
        rank.start()
    answers = dict(told.get(timeout=patience(60)) for _ in ranks)
    for rank in ranks:
        rank.join()
    return [answers[rank] for rank in range(2)]


def _do(world: World, directory: Path, told: Any, do: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    config = TrainConfig(group=GroupConfig(backend="gloo"), place=PlaceConfig(init_file=directory / "store"))
    told.put((world.rank, do(world, config, *arguments)))


def seconds_waited(world: World, config: TrainConfig) -> float:
    """How long rank 0 waits in a collective that rank 1 does not begin."""
    options.LOOKING_SECONDS = 0
    group = replace(config.group, verdict_seconds=COLLECTIVE_SECONDS)
    joining.process_group(world, replace(config, group=group)).__enter__()
    store, began = dist.distributed_c10d._get_default_store(), time.monotonic()
    if world.leads:
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(1))
        store.set("waited", "")
    else:
        store.wait(["waited"], timedelta(seconds=600))
    return time.monotonic() - began


def test_once_all_have_joined_a_collective_waits_for_less_than_they_did(tmp_path: Path) -> None:
    waited, _ = results(tmp_path, seconds_waited)
    assert COLLECTIVE_SECONDS <= waited < options.JOINING_SECONDS / 2


def times_left(world: World, config: TrainConfig) -> int:
    """How many times a rank has left its group just when a thread of gloo released a tensor of Python's."""
    dist.barrier = lambda: dist.all_gather([torch.zeros(1) for _ in range(2)], torch.ones(1))
    for time_left in range(TIMES):
        place = PlaceConfig(init_file=config.place.init_file.with_name(f"store-{time_left}"))  # type: ignore[union-attr]
        with joining.process_group(world, replace(config, place=place)):
            model = parallel(nn.Linear(1, 1), CommunicationConfig(), CPU)
        del model  # It is the last to hold the group, unless that is kept.
    return TIMES


def test_a_rank_ends_though_a_thread_of_its_group_still_releases_a_tensor(tmp_path: Path) -> None:
    assert results(tmp_path, times_left) == [TIMES, TIMES]


def acts_at(world: World, config: TrainConfig) -> int:
    """Where a rank stops, which agrees with the others through a store that their group has made."""
    joining.process_group(world, config).__enter__()
    assert joining.store_of_mpi(world) is None, "this group has a store of its own"
    store = joining.store_through_group(world)
    agreement = agreement_of_group("training", "step()", store)
    store.get("ddpjob/agreement/training/0/1")
    step = 1
    while agreement.reached(step) is not Wish.STOP:
        if step == WISHED_AFTER and not world.leads:
            agreement.wish(Wish.STOP)
        time.sleep(0.01)
        step += 1
    return step


def test_ranks_of_a_group_without_a_store_agree_through_another_one(tmp_path: Path) -> None:
    ours, theirs = results(tmp_path, acts_at)
    assert ours == theirs > WISHED_AFTER


def buffers(world: World, config: TrainConfig, module: type[nn.Module], *arguments: Any) -> list[float]:
    """A rank's buffer: what it is when the model has been wrapped, and after a pass of other inputs in each rank."""
    joining.process_group(world, config).__enter__()
    model = module(*arguments)
    model.running_mean.fill_(world.rank + 1)
    ddp = parallel(model, CommunicationConfig(), CPU)
    wrapped = model.running_mean.item()
    model.running_mean.fill_(world.rank + 3)
    ddp(torch.full((2, 1), 3.0 + world.rank))
    return [wrapped, round(model.running_mean.item(), 3)]


@pytest.mark.parametrize(
    ("module", "after"),
    [((nn.BatchNorm1d, 1), [3, 4]), ((Shifted,), [3, 3])],
    ids=["statistics that no step reads stay each rank's own", "what a step reads is rank 0's in each step"],
)
def test_buffers_begin_as_rank_0s(tmp_path: Path, module: tuple[Any, ...], after: list[float]) -> None:
    assert results(tmp_path, buffers, *module) == [[1, then] for then in after]

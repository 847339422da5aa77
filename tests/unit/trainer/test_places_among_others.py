"""What depends on a rank's place among others, or on how often a run has begun."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ddpjob.group import collectives
from ddpjob.group.group_world import world_of_group
from ddpjob.group.shared_file import SharedFile
from ddpjob_rank.errors import ConfigError
from ddpjob_rank.world import World
from ddpjob_trainer.group import stores
from ddpjob_trainer.group.joining import _addresses
from ddpjob_trainer.group.stores import ADDRESS, InitMethod
from ddpjob_trainer.model.compression import PowerSGD
from ddpjob_trainer.model.evaluation import _shard
from torch.distributed import HashStore

CPU = torch.device("cpu")
OF_A_NODE = 2


def worlds(size: int = 6) -> list[World]:
    """Those of nodes with two processes each."""
    return [World(rank, rank % OF_A_NODE, size, OF_A_NODE) for rank in range(size)]


def test_each_attempt_and_each_restart_by_torchrun_meets_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    monkeypatch.setattr(stores, "_tcp_store", lambda _: store)
    for attempt in (1, 2, 3):
        for restart in (0, 1, 2):
            monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restart))
            InitMethod(World(), attempt, 1.0).join("gloo", "10.0.0.1")
    with pytest.raises(ConfigError, match=r"rank 0 is already at .*"):
        InitMethod(World(), 3, 1.0).join("gloo", "10.0.0.1")


def test_the_way_to_each_other_process_is_looked_at_once_those_of_the_next_node_first() -> None:
    store = HashStore()
    for rank in range(6):
        store.set(f"{ADDRESS}/{rank}", f"of {rank}")
    each = [[int(address.removeprefix("of ")) for address in _addresses(store, world)] for world in worlds()]
    assert all(sorted(order) == list(range(6)) for order in each)
    assert [order[0] for order in each] == [2, 3, 4, 5, 0, 1]


def test_whoever_shares_a_copy_shares_that_of_its_own_nodes_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {world.rank: SharedFile.in_memory() for world in worlds() if world.local_rank == 0}
    monkeypatch.setattr(
        collectives,
        "all_gather",
        lambda _, world, __: [files[rank].address if rank in files else ("", "") for rank in range(world.world_size)],
    )
    for world in worlds():
        mine, fills = collectives._copy(None, world, None)
        shared = files[world.rank - world.local_rank]
        assert fills == (world.local_rank == 0)
        assert fills or mine.address[1] == shared.address[1]


@pytest.mark.parametrize("samples", [6, 7, 11, 12, 2])
def test_each_sample_is_evaluated_once_by_one_of_all(samples: int) -> None:
    shards = [[int(index) for batch in _shard(samples, world, 2) for index in batch] for world in worlds()]
    assert sorted(index for shard in shards for index in shard) == list(range(samples))
    assert {len(shard) for shard in shards} <= {samples // 6, samples // 6 + 1}


def test_each_rank_goes_on_with_what_it_had_left_out_itself_or_with_the_mean_of_all() -> None:
    saved = [
        {"layout": [], "steps": 7, **{name: {0: torch.full((2,), float(rank))} for name in ("errors", "ps", "qs")}}
        for rank in range(3)
    ]
    assert [left_out(saved, world) for world in worlds(3)] == [0.0, 1.0, 2.0]
    assert [left_out(saved, world) for world in worlds(4)] == [1.0] * 4


def left_out(saved: list[dict[str, Any]], world: World) -> float:
    """What a rank adds to the first gradients that it sends."""
    state = SimpleNamespace(iter=0, error_dict={}, p_memory_dict={}, q_memory_dict={})
    own: Any = SimpleNamespace(_state=state, _layout=list)
    assert PowerSGD.restore(own, saved, world, CPU)
    assert state.iter == 7
    return float(state.error_dict[0][0])


@pytest.mark.parametrize(
    ("env", "world"),
    [
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, World(5, 1, 6, 2)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "6"}, World(5, 1, 6, 6)),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, World(5, 0, 6, 1)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "7"}, World(5, 0, 6, 1)),
        ({"LOCAL_RANK": "1"}, World(5, 0, 6, 1)),
        ({"LOCAL_WORLD_SIZE": "2"}, World(5, 0, 6, 1)),
        ({"LOCAL_RANK": "-1", "LOCAL_WORLD_SIZE": "2"}, World(5, 0, 6, 1)),
    ],
)
def test_a_process_has_its_place_from_its_group_and_that_on_its_node_if_it_can_be(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], world: World
) -> None:
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for name, answer in (("is_initialized", True), ("get_rank", 5), ("get_world_size", 6)):
        monkeypatch.setattr(torch.distributed, name, lambda answer=answer: answer)
    assert world_of_group("the saver") == world


@pytest.mark.parametrize(("size", "refused"), [(None, False), ("1", False), ("2", True), ("two", False)])
@pytest.mark.parametrize("available", [True, False])
def test_without_a_group_a_process_is_alone_unless_others_were_started(
    monkeypatch: pytest.MonkeyPatch, size: str | None, *, refused: bool, available: bool
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size:
        monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: available)
    if refused:
        with pytest.raises(ConfigError, match=r"^the saver needs the process group of all 2 processes: call "):
            world_of_group("the saver")
    else:
        assert world_of_group("the saver") == World()

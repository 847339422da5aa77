"""All ranks begin a save together, or none of them."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from ddpjob.checkpoint import common_start
from ddpjob.checkpoint.common_start import CommonStart
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.world import World

from tests.support.waiting import patience

RANKS = 3
SECONDS = 0.4


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[CommonStart]:
    """Those of all ranks, each with its own connection to a real store."""
    served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stores = [served, *(dist.TCPStore("127.0.0.1", served.port, is_master=False) for _ in range(1, RANKS))]
    monkeypatch.setattr(common_start, "_get_process_group_store", lambda group: group)
    return [CommonStart(store, World(rank, rank, RANKS, RANKS)) for rank, store in enumerate(stores)]  # type: ignore[arg-type]


def together(*comes: Any) -> list[str]:
    """What each of the calls ends with, all made at the same time in a random order."""

    def outcome(call: Any) -> str:
        time.sleep(random.uniform(0.0, 0.1))
        try:
            call()
        except PeerLostError as error:
            return str(error)
        return "go"

    with ThreadPoolExecutor(len(comes)) as threads:
        return [each.result(patience(30)) for each in [threads.submit(outcome, call) for call in comes]]


def coming(start: CommonStart, position: int, seconds: float = SECONDS) -> Any:
    return lambda: start.await_all(position, seconds)


def test_all_ranks_go_if_all_have_come_and_again_at_the_same_position(starts: list[CommonStart]) -> None:
    for position in (7, 7, 9):
        assert together(*(coming(start, position, 30.0) for start in starts)) == ["go"] * RANKS


def test_a_rank_that_does_not_come_is_named_by_all_and_they_meet_again_in_the_next_save(
    starts: list[CommonStart],
) -> None:
    missing = random.randrange(1, RANKS)
    here = [start for rank, start in enumerate(starts) if rank != missing]
    said = f"rank {missing} has not come to the save within 0 s, so this step is not saved"
    assert together(*(coming(start, 1) for start in here)) == [said] * (RANKS - 1)
    with pytest.raises(PeerLostError, match=said):
        starts[missing].await_all(1, 0.0)
    assert together(*(coming(start, 2, 30.0) for start in starts)) == ["go"] * RANKS


def test_a_rank_that_is_ahead_of_rank_0_is_named_at_once_and_waits_for_it(starts: list[CommonStart]) -> None:
    ahead = random.randrange(1, RANKS)
    here = [start for rank, start in enumerate(starts) if rank != ahead]

    def others() -> None:
        said = together(*(coming(start, 1, 30.0) for start in here))
        assert said == [f"rank {ahead} is at another step than rank 0, so this step is not saved"] * (RANKS - 1)
        assert together(*(coming(start, 2, 30.0) for start in here)) == ["go"] * (RANKS - 1)

    assert together(others, coming(starts[ahead], 2, 30.0)) == ["go", "go"]


def test_a_rank_that_is_behind_rank_0_does_not_wait(starts: list[CommonStart]) -> None:
    said = together(coming(starts[0], 2, SECONDS), coming(starts[1], 1, 30.0), coming(starts[2], 2, 30.0))
    assert said[1] == "rank 1 is at another step than rank 0, so this step is not saved"
    assert said[0] == said[2] == "rank 1 has not come to the save within 0 s, so this step is not saved"


def test_if_rank_0_does_not_come_the_others_give_up_and_it_does_not_go_alone(starts: list[CommonStart]) -> None:
    said = together(*(coming(start, 1, SECONDS / 2) for start in starts[1:]))
    assert said[0] == said[1]
    assert said[0].startswith("rank 0 has not come to the save at which rank ")
    assert together(coming(starts[0], 1, 30.0)) == [said[0]]


def test_the_end_of_the_store_is_a_lost_rank(starts: list[CommonStart], monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise RuntimeError("Connection reset by peer")

    monkeypatch.setattr(starts[1], "_store", SimpleNamespace(set=lost))
    with pytest.raises(
        PeerLostError, match=r"^rank 0 was lost before all ranks had come to a save: Connection reset"
    ):
        starts[1].await_all(1, SECONDS)

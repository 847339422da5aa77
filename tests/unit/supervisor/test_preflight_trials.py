"""The preflight's trials: a sum with a known result, products, and the store through which ranks tell of them."""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddpjob_preflight import counting, exchange, trial_store
from ddpjob_preflight.exchange import Group
from ddpjob_preflight.plan import Outcome
from ddpjob_preflight.trial_store import TrialStore
from ddpjob_rank.errors import PeerLostError
from ddpjob_rank.world import World
from ddpjob_supervisor.preflight.findings import PreflightError

CPU = torch.device("cpu")
VALUES = 600


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """What is added to the fifth number in each of the sums; the clock shows a second more each time."""
    added: list[float] = []

    def all_reduce(values: torch.Tensor) -> None:
        """As over three ranks, of which this one is rank 1: their factors are 1, 2 and 3."""
        values *= (1 + 2 + 3) / 2
        values[5] += added.pop(0)

    clock = itertools.accumulate(itertools.count())
    monkeypatch.setattr(exchange, "CPU_BYTES", 4 * VALUES)
    monkeypatch.setattr(exchange, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return added


def test_a_sum_that_is_right_each_time_has_no_trouble_and_the_best_of_three_times(sums: list[float]) -> None:
    sums += [0.0] * 4
    assert exchange._sum(Group("all", 1, 3), CPU) == Outcome("", seconds=2.0, size=4 * VALUES)
    assert sums == [], "the first is not timed, and three are"


@pytest.mark.parametrize("turn", range(4))
def test_a_sum_that_is_wrong_once_is_told_however_right_the_others_are(sums: list[float], turn: int) -> None:
    sums += [float(number == turn) for number in range(4)]
    outcome = exchange._sum(Group("all", 1, 3), CPU)
    assert outcome.trouble.endswith(f" at 1 of {VALUES} places")
    assert sums == [], "the others go on, and need this rank"


def test_products_that_are_not_the_cpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PRODUCT_SIZE", 8)
    assert exchange._wrong_products(CPU) == 0
    honest = torch.Tensor.__matmul__
    calls = itertools.count()

    def broken(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        product = honest(left, right)
        product[0, 0] += next(calls) > 0  # The first is what is expected.
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", broken)
    assert exchange._wrong_products(CPU) == exchange.PRODUCTS
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    for wrong, told in ((0, ""), (3, f"{exchange.WRONGLY}: 3 wrong values in {exchange.PRODUCTS} matrix products")):
        monkeypatch.setattr(exchange, "_wrong_products", lambda _, wrong=wrong: wrong)
        assert exchange.try_gpu(1) == Outcome(told)


@pytest.mark.parametrize(
    ("count", "error", "found"),
    [
        (2, None, {"count": 2, "why": ""}),
        (0, None, {"count": 0, "why": ""}),
        (
            0,
            RuntimeError("No CUDA GPUs are available. Ask others"),
            {"count": 0, "why": "No CUDA GPUs are available"},
        ),
        (0, AssertionError("Torch not compiled with CUDA enabled"), {"count": 0, "why": None}),
        (0, RuntimeError("The driver. It is\ntoo old"), {"count": 0, "why": "too old"}),
    ],
)
def test_gpus_are_counted_and_why_there_are_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, error: Exception | None, found: dict[str, Any]
) -> None:
    def init() -> None:
        if error:
            raise error

    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(sys, "argv", ["counting", str(tmp_path / "found")])
    counting.main()
    told = json.loads((tmp_path / "found").read_text())
    assert [*told.values()] == [found["count"], str(error) if found["why"] is None else found["why"]]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dist.HashStore:
    shared = dist.HashStore()
    monkeypatch.setattr(trial_store, "await_rank_0", lambda *_: None)
    monkeypatch.setattr(trial_store, "_store", lambda *_, **__: shared)
    return shared


@pytest.mark.usefixtures("store")
def test_each_step_is_answered_by_each_rank_and_answers_are_kept_apart() -> None:
    ranks = [TrialStore(World(rank=rank, world_size=3), 1.0) for rank in range(3)]
    for number in range(3):
        ranks[0].announce({"step": number})
        assert [rank.next_step(1.0) for rank in ranks[1:]] == [{"step": number}] * 2
        for rank, store in enumerate(ranks):
            store.answer(Outcome(f"{number} of {rank}", seconds=number + 0.5, size=7))
        assert ranks[0].outcomes([0, 2], 1.0) == {
            rank: Outcome(f"{number} of {rank}", seconds=number + 0.5, size=7) for rank in (0, 2)
        }


@pytest.mark.usefixtures("store")
def test_of_ranks_that_do_not_answer_in_time_the_others_answers_are_known() -> None:
    ranks = [TrialStore(World(rank=rank, world_size=3), 1.0) for rank in range(3)]
    ranks[0].announce({})
    ranks[2].next_step(1.0)
    ranks[2].answer(Outcome())
    assert ranks[0].outcomes(range(3), 0.05) == {2: Outcome()}


@pytest.mark.usefixtures("store")
def test_a_rank_0_that_announces_nothing_is_lost() -> None:
    with pytest.raises(PeerLostError, match="lost rank 0 in preflight: "):
        TrialStore(World(rank=1, world_size=2), 1.0).next_step(0.05)


def test_a_rank_0_that_does_not_answer_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise PeerLostError("waited in vain")

    def gone(*_: object, **__: object) -> None:
        raise dist.DistNetworkError("connection reset")

    monkeypatch.setattr(trial_store, "await_rank_0", lost)
    with pytest.raises(PreflightError, match="rank 1 waited in vain") as caught:
        TrialStore(World(rank=1, world_size=2), 1.0)
    assert caught.value.nodes == (0,)
    monkeypatch.setattr(trial_store, "await_rank_0", lambda *_: None)
    monkeypatch.setattr(trial_store, "_store", gone)
    with pytest.raises(PreflightError, match="rank 1 lost rank 0 immediately: ") as caught:
        TrialStore(World(rank=1, world_size=2), 1.0)
    assert caught.value.nodes == (0,)

"""The preflight's trials: a sum with a known result, products, and the store through which ranks tell of them."""

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch
import torch.distributed as dist
from ddpjob_preflight import collective, counting, exchange, trial_store
from ddpjob_preflight.child import Child
from ddpjob_preflight.collective import Trials
from ddpjob_preflight.exchange import Group
from ddpjob_preflight.plan import NO_END, WRONG, Outcome
from ddpjob_preflight.trial_store import TrialStore
from ddpjob_rank.errors import PeerLostError, TrainerError
from ddpjob_rank.world import World
from ddpjob_supervisor.preflight.findings import PreflightError

from tests.support.waiting import patience

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


def test_a_sum_that_is_right_each_time_has_no_trouble_and_the_best_of_three_times(
    sums: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    sums += [0.0] * 4
    finished: list[int] = []
    monkeypatch.setattr(exchange, "_finish", lambda _: finished.append(len(sums)))
    assert exchange._sum(Group("all", 1, 3), CPU) == Outcome("", seconds=2.0, size=4 * VALUES)
    assert sums == [], "the first is not timed, and three are"
    assert finished == [4, 3, 3, 2, 2, 1, 1, 0], "before and after each sum"


def test_the_sums_of_five_thousand_ranks_are_whole_numbers_that_a_float32_can_hold() -> None:
    largest = (exchange.PERIOD - 1) * sum(rank % exchange.FACTORS + 1 for rank in range(5000))
    assert largest < 1 << 24


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
    used: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    for wrong, told in ((0, ""), (3, f"{exchange.WRONGLY}: 3 wrong values in {exchange.PRODUCTS} matrix products")):
        monkeypatch.setattr(exchange, "_wrong_products", lambda _, wrong=wrong: wrong)
        assert exchange.try_gpu(1) == Outcome(told)
    assert used == [torch.device("cuda", 1)] * 2


def test_a_gpu_is_waited_for_before_time_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[object] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    for device in (CPU, torch.device("cuda", 1)):
        exchange._finish(device)
    assert waited == [torch.device("cuda", 1)]


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
    monkeypatch.setattr(trial_store, "_store", lambda *_, serves: None if serves else shared)
    return shared


def test_one_process_serves_the_store_and_ranks_only_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(dist, "TCPStore", lambda *where, **how: made.append((where, how)))
    monkeypatch.setattr(trial_store, "await_rank_0", lambda *_: None)
    monkeypatch.setattr(trial_store, "_KEPT", [])
    world = World(rank=0, world_size=2, master_addr="10.0.0.7", master_port=4711)
    assert trial_store.serve(world, 7.0) == Outcome()
    assert trial_store._KEPT == [None]
    TrialStore(world, 7.0)
    how = {"timeout": timedelta(seconds=7), "wait_for_workers": False}
    assert made == [(("10.0.0.7", 4711), {"is_master": serves, **how}) for serves in (True, False)]


def test_a_rank_that_cannot_answer_any_more_has_lost_rank_0(
    store: dist.HashStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise dist.DistNetworkError("Connection reset by peer")

    mine = TrialStore(World(rank=1, world_size=2), 1.0)
    store.set("entry/0", "{}")
    mine.next_step(1.0)
    monkeypatch.setattr(type(store), "set", gone)
    with pytest.raises(PeerLostError, match=r"^lost rank 0 in preflight: Connection reset by peer$"):
        mine.answer(Outcome())


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
    assert ranks[0].outcomes(range(3), 0.05) == {2: Outcome("", seconds=0.0, size=0)}


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


class Here:
    """A trial that runs in this process, instead of a child."""

    def __init__(self, trial: Callable[[], Outcome]) -> None:
        self._trial = trial

    def outcome(self, _seconds: float) -> Outcome:
        return self._trial()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to end."""


@dataclass
class Gang:
    """What the ranks of a gang did and said."""

    sums: set[tuple[str, int, int, int, float]] = field(default_factory=set)
    """The name, place and size of each group, the rank that was in it, and its time limit."""
    errors: dict[int, PreflightError] = field(default_factory=dict)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, store: dist.HashStore) -> Callable[..., Gang]:  # noqa: ARG001
    """Tries a gang, one thread for each rank, of which some nodes give wrong sums."""
    monkeypatch.setattr(collective, "Child", Here)
    monkeypatch.setattr(collective, "serve", lambda *_: Outcome())

    def run(
        nodes: int, per_node: int, *, wrong: Collection[int] = (), absent: Collection[int] = (), seconds: float = 30.0
    ) -> Gang:
        gang, size = Gang(), nodes * per_node

        def sum_over(group: Group, world: World, _backend: str, seconds: float) -> Outcome:
            gang.sums.add((group.name, group.rank, group.size, world.rank, seconds))
            met = range(nodes) if group.name == "all" else map(int, group.name.split("-"))
            return Outcome(f"{WRONG} at 1 of 9 places" if {*met} & {*wrong} else "", seconds=0.5, size=1 << 20)

        def take_part(rank: int) -> None:
            world = World(rank, rank % per_node, size, per_node)
            try:
                Trials(world, "gloo", seconds, sum_over).run()
            except PreflightError as error:
                gang.errors[rank] = error

        threads = [threading.Thread(target=take_part, args=(rank,)) for rank in range(size) if rank not in absent]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return gang

    return run


def test_all_ranks_sum_together_and_then_the_first_of_each_pair_of_nodes(tried: Callable[..., Gang]) -> None:
    gang = tried(3, 2)
    assert gang.errors == {}
    everybody = {("all", rank, 6, rank, 30.0) for rank in range(6)}
    pairs = {
        (f"{lower}-{higher}", place, 2, 2 * node, 10.0)
        for lower, higher in itertools.combinations(range(3), 2)
        for place, node in enumerate((lower, higher))
    }
    assert gang.sums == everybody | pairs


@pytest.mark.parametrize("node", range(3))
def test_the_ranks_of_the_node_at_fault_say_so_and_no_others(tried: Callable[..., Gang], node: int) -> None:
    errors = tried(3, 2, wrong=[node]).errors
    assert errors.keys() == {2 * node, 2 * node + 1}
    assert {error.nodes for error in errors.values()} == {(node,)}


def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_a_trial_takes(
    tried: Callable[..., Gang], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collective, "MARGIN_SECONDS", 0.1)
    asked, outcomes = [], TrialStore.outcomes
    monkeypatch.setattr(TrialStore, "outcomes", lambda *how: (asked.append({*how[1]}), outcomes(*how))[1])
    began = time.monotonic()
    gang = tried(3, 1, absent=[1], seconds=0.1)
    assert time.monotonic() - began < patience(10)
    assert gang.sums == set(), "nothing is summed without it"
    assert asked == [{1, 2}, {2}], "nor is it asked again"
    assert {rank: error.nodes for rank, error in gang.errors.items()} == {0: (1,)}


def test_a_rank_alone_has_nobody_to_sum_with(tried: Callable[..., Gang]) -> None:
    assert tried(1, 1) == Gang()


def test_a_rank_0_whose_port_is_taken_says_so(monkeypatch: pytest.MonkeyPatch, tried: Callable[..., Gang]) -> None:
    monkeypatch.setattr(collective, "serve", lambda *_: Outcome("Address already in use"))
    monkeypatch.setattr(TrialStore, "next_step", lambda *_: {"findings": []})
    monkeypatch.setattr(TrialStore, "answer", lambda *_: None)
    (error,) = tried(1, 2).errors.values()
    assert str(error) == "rank 0 cannot serve port 0: Address already in use"
    assert error.nodes == (0,)


def test_a_gang_has_the_backend_that_its_gpus_suffice_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [collective._fitting_backend(World(local_world_size=size)) for size in (1, 2, 3)] == [
        "nccl",
        "nccl",
        "gloo",
    ]


def raising() -> Outcome:
    raise ValueError


def ending() -> Outcome:
    os._exit(7)


@pytest.mark.parametrize(
    ("trial", "outcome"),
    [
        (lambda: Outcome("bad", seconds=0.5, size=9), Outcome("bad", seconds=0.5, size=9)),
        (lambda: Outcome("x" * 100_000), Outcome("x" * 100_000)),
        (raising, Outcome("ValueError")),
        (ending, Outcome("its process ended with exit code 7")),
        (signal.pause, Outcome(f"{NO_END} 0 s")),
    ],
    ids=["a result", "a long one", "an error", "an end", "no end"],
)
def test_a_trial_in_a_process_of_its_own_is_told_however_it_ends(trial: Any, outcome: Outcome) -> None:
    with Child(trial) as child:
        assert child.outcome(0.05 if trial is signal.pause else 30.0) == outcome
        pid = child._pid
    if pid:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_the_group_of_a_trial_has_its_own_keys_and_its_own_time(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    stores: list[Any] = []
    made: dict[str, Any] = {}
    shared = dist.HashStore()
    shared.set("pair/address/1", "10.0.0.2")

    def store(*where: Any, timeout: timedelta) -> dist.HashStore:
        stores.append((*where, timeout))
        return shared

    monkeypatch.setattr(dist, "TCPStore", store)
    monkeypatch.setattr(dist, "init_process_group", lambda name, **how: made.update(how, backend=name))
    monkeypatch.setattr(dist, "barrier", lambda: made.update(left="together"))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: made.update(device=device))
    monkeypatch.setattr(exchange, "local_address", lambda _: "10.0.0.1")
    monkeypatch.setattr(exchange, "choose_interface", lambda own, others: made.update(met=(own, [*others])))
    monkeypatch.setattr(exchange, "_sum", lambda group, device: Outcome(f"{group.name} on {device}"))
    world = World(4, 1, 8, 2, "10.0.0.9", 29500)
    outcome = exchange.sum_over(Group("pair", 0, 2), world, backend, 5.0)
    seconds = timedelta(seconds=10 if backend == "nccl" else 5)
    assert stores == [("10.0.0.9", 29500, seconds)]
    assert (made["rank"], made["world_size"], made["timeout"], made["left"]) == (0, 2, seconds, "together")
    device = torch.device("cuda", 1) if backend == "nccl" else CPU
    assert (made["backend"], made["device_id"]) == (backend, device if backend == "nccl" else None)
    assert made.get("device") == (device if backend == "nccl" else None)
    assert made.get("met") == (None if backend == "nccl" else ("10.0.0.1", ["10.0.0.2"]))
    assert outcome == Outcome(f"pair on {device}")
    if backend == "gloo":
        assert shared.get("pair/address/0") == b"10.0.0.1"


def test_a_group_whose_ranks_do_not_come_is_told_with_how_long_it_was_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(*_: object) -> None:
        raise dist.DistStoreError("wait timeout after 5000ms, keys: /pair/0")

    monkeypatch.setattr(exchange, "_join", late)
    assert exchange.sum_over(Group("pair", 0, 2), World(), "gloo", 5.0) == Outcome(f"{NO_END} 5 s")


@pytest.mark.usefixtures("store")
def test_a_rank_alone_that_has_a_broken_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "Child", Here)
    monkeypatch.setattr(collective, "try_gpu", lambda rank: Outcome(f"{exchange.WRONGLY} on {rank}"))
    with pytest.raises(TrainerError, match=f"the GPU of rank 0 on node 0 {exchange.WRONGLY} on 0"):
        Trials(World(), "nccl", 30.0).run()


class LeftError(BaseException):
    """The process has ended."""


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (PreflightError("node 1 is cut off"), 201)], ids=["fit", "not fit"]
)
def test_its_program_ends_with_the_code_and_the_report_of_what_it_found(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: PreflightError | None,
    code: int,
) -> None:
    arguments, seconds = (["--timeout-seconds", "7"], 7.0) if error else ([], 60.0)

    def leave(code: int) -> None:
        raise LeftError(code)

    def run(trials: Trials) -> None:
        assert (trials.world.rank, trials.backend, trials.seconds) == (1, "gloo", seconds)
        if error:
            raise error

    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "x"}
    own = {"MASTER_PORT": "1", "DDPJOB_TERMINATION_LOG": str(tmp_path / "report"), "DDPJOB_BACKEND": "gloo"}
    monkeypatch.setattr(os, "environ", env | own)
    monkeypatch.setattr(sys, "argv", ["collective", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(collective, "leave_at_once", leave)
    monkeypatch.setattr(Trials, "run", run)
    with pytest.raises(LeftError) as left:
        collective.main()
    assert left.value.args == (code,)
    if error:
        told = json.loads((tmp_path / "report").read_text())
        assert (told["cause"], told["rank"]) == ("PreflightFailed", 1)
    assert capsys.readouterr().err == (f"error: {error}\n" if error else "")

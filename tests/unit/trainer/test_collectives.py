"""What ranks exchange besides gradients; here each rank is a thread."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from ddpjob.group import collectives, shared_file
from ddpjob.group.collectives import all_gather, broadcast_buffers, broadcast_file, gather
from ddpjob.group.shared_file import SharedFile
from ddpjob.training import buckets
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

NODES, PER_NODE = 2, 2
SIZE = NODES * PER_NODE


class Threads:
    """The collectives of torch.distributed, for ranks that are threads."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._together = threading.Barrier(SIZE, timeout=60)
        self._slots: list[Any] = [None] * SIZE
        self.sent = 0

    @contextmanager
    def rank(self, rank: int) -> Iterator[None]:
        self._here.rank = rank
        try:
            yield
        except BaseException:
            self._together.abort()
            raise

    def _exchange(self, tensor: Tensor) -> list[Tensor]:
        self._slots[self._here.rank] = tensor.clone()
        self._together.wait()
        found = list(self._slots)
        if self._together.wait() == 0:
            self.sent += 1
        return found

    def all_gather(self, gathered: list[Tensor], mine: Tensor, group: Any = None) -> None:
        assert group is None
        for place, value in zip(gathered, self._exchange(mine), strict=True):
            place.copy_(value)

    def gather(self, mine: Tensor, gathered: list[Tensor] | None, group: Any = None) -> None:
        assert (gathered is not None) == (self._here.rank == 0)
        self.all_gather(gathered or [torch.empty_like(mine) for _ in range(SIZE)], mine, group)

    def broadcast(self, tensor: Tensor, src: int, group: Any = None) -> None:
        assert group is None
        tensor.copy_(self._exchange(tensor)[src])

    def all_reduce(self, tensor: Tensor, group: Any = None) -> None:
        assert group is None
        tensor.copy_(torch.stack(self._exchange(tensor)).sum(0))


OnRanks = Callable[[Callable[[World], Any]], list[Any]]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    made = Threads()
    for name in ("all_gather", "gather", "broadcast", "all_reduce"):
        monkeypatch.setattr(collectives.dist, name, getattr(made, name))
    return made


@pytest.fixture
def on_ranks(threads: Threads) -> OnRanks:
    """What each rank of two nodes with two processes each gets of something that all do."""

    def run(rank: int, act: Callable[[World], Any]) -> Any:
        with threads.rank(rank):
            return act(World(rank, rank % PER_NODE, SIZE, PER_NODE))

    def all_of(act: Callable[[World], Any]) -> list[Any]:
        with ThreadPoolExecutor(SIZE) as pool:
            return list(pool.map(run, range(SIZE), [act] * SIZE))

    return all_of


def test_values_of_all_sizes_come_from_each_rank_in_order(on_ranks: OnRanks) -> None:
    values = ["", "a" * 1000, None, ("pair", 7)]
    assert on_ranks(lambda world: all_gather(values[world.rank], world)) == [values] * SIZE
    assert on_ranks(lambda world: gather(values[world.rank], world)) == [values, [], [], []]
    assert all_gather("mine", World()) == gather("mine", World()) == ["mine"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes are sent at once, and to how many a file counts as small."""
    monkeypatch.setattr(collectives, "PORTION_BYTES", 8)
    return 8


def filled(content: bytes) -> SharedFile:
    file = SharedFile.in_memory()
    file.write(memoryview(content))
    return file


def content(file: SharedFile) -> bytes:
    return b"".join(file.portions())


@pytest.mark.parametrize("size", [0, 1, 8, 9, 16, 25])
def test_a_file_comes_whole_to_each_rank_and_a_large_one_once_to_each_node(
    on_ranks: OnRanks, threads: Threads, small: int, size: int
) -> None:
    whole = bytes(range(size))
    files = on_ranks(lambda world: broadcast_file(filled(whole) if world.leads else None, world))
    assert [content(file) for file in files] == [whole] * SIZE
    inodes = [file.address[1] for file in files]
    assert len({*inodes}) == (NODES if size > small else SIZE)
    if size > small:
        assert [inodes[0], inodes[2]] == [inodes[1], inodes[3]]
    # Its size, then its portions; of a large one also two exchanges of where the copies are, and a barrier.
    assert threads.sent == 1 + -(-size // small) + 3 * (size > small)


@pytest.mark.usefixtures("small")
def test_who_cannot_open_the_copy_of_its_node_has_one_of_its_own(
    on_ranks: OnRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedFile, "of", lambda *_: None)
    files = on_ranks(lambda world: broadcast_file(filled(bytes(20)) if world.leads else None, world))
    assert [content(file) for file in files] == [bytes(20)] * SIZE
    assert len({file.address[1] for file in files}) == SIZE


def test_where_rank_0_has_no_file_nobody_gets_one(on_ranks: OnRanks) -> None:
    assert on_ranks(lambda world: broadcast_file(None, world)) == [None] * SIZE
    file = filled(b"x")
    assert broadcast_file(file, World()) is file


def test_buffers_are_rank_0s_and_weights_stay(on_ranks: OnRanks) -> None:
    def norm(world: World) -> Any:
        model = nn.BatchNorm1d(1)
        model.running_mean = torch.tensor([10.0 + world.rank])
        nn.init.constant_(model.weight, world.rank)
        broadcast_buffers(model, world)
        return model.running_mean.item(), model.weight.item()

    assert on_ranks(norm) == [(10.0, float(rank)) for rank in range(SIZE)]
    broadcast_buffers(nn.BatchNorm1d(1), World())


def test_a_file_of_another_machine_or_another_file_in_its_place_is_not_opened() -> None:
    file, other = filled(b"x"), filled(b"y")
    path, identity = file.address
    found = SharedFile.of(path, identity)
    assert found
    assert (content(found), found.size) == (b"x", 1)
    assert SharedFile.of(path, other.address[1]) is None
    assert SharedFile.of(f"{path}0000", identity) is None
    file.seal()
    for change in (lambda: file.write(memoryview(b"z")), file.empty):
        with pytest.raises(PermissionError):
            change()
    other.empty()
    assert other.size == 0
    assert [*filled(bytes(20)).portions(8)] == [bytes(8), bytes(8), bytes(4)]
    assert shared_file.PORTION_BYTES >= 1 << 20


@pytest.mark.usefixtures("alone_in_a_group")
def test_a_resumed_model_begins_with_the_buckets_that_it_had() -> None:
    def model() -> DistributedDataParallel:
        layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        layers[0].bias.requires_grad_(False)
        return DistributedDataParallel(layers, bucket_cap_mb=1e-5)

    def step(ddp: DistributedDataParallel) -> None:
        ddp(torch.ones(1, 2)).sum().backward()

    first = model()
    assert buckets.orders([("model", first), ("other", nn.Linear(1, 1))]) == {}
    step(first)
    saved = buckets.orders([("model", nn.ModuleList([first]))])
    assert sorted(saved["model"]) == [0, 1, 2], "of those that are trained"
    another = saved["model"][1:] + saved["model"][:1]
    resumed = model()
    buckets.arrange([("model", resumed)], {"model": another})
    assert all(parameter.grad is None for parameter in resumed.parameters())
    step(resumed)
    assert buckets.orders([("model", resumed)]) == {"model": another}
    for unfit in ({}, {"model": [0, 1]}, {"other": another}):
        fresh = model()
        buckets.arrange([("model", fresh)], unfit)
        step(fresh)
        assert buckets.orders([("model", fresh)]) == saved

"""An epoch that was interrupted goes on with the batches, and the random numbers, that it would have had."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from ddpjob import random_state
from ddpjob.data import DistributedBatchSampler, replay_tracker
from ddpjob.data.index_order import FollowedSampler, Handed
from ddpjob.data.resumable_loader import ResumableLoader
from ddpjob.group import values
from ddpjob_rank.errors import ConfigError
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from tests.support.seed import SEED

SAMPLES, BATCH, EPOCHS = 37, 4, 3
Make = Callable[..., Iterable[Any]]


def numbers() -> tuple[float, float, float]:
    """The next number of each generator."""
    return float(torch.rand(1)), random.random(), float(np.random.rand())  # noqa: NPY002


class Drawing(Dataset[Any]):
    """Its samples have random numbers, unless a worker fetches them; it counts what it fetched itself."""

    fetched = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, float]:
        type(self).fetched += 1
        return index, 0.0 if get_worker_info() else sum(numbers())


class Augmented(Drawing):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(3)

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, self.generator.random()


class Stream(IterableDataset[Any]):
    """Samples in a random order that is drawn anew in each epoch."""

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(SAMPLES).tolist()
        worker = get_worker_info()
        return iter(order if worker is None else sorted(order)[worker.id :: worker.num_workers])


class Counting(IterableDataset[Any]):
    """A data set that keeps its position, as those of Hugging Face do."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        while self.position < SAMPLES:
            self.position += 1
            yield self.position - 1
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "bytes": b"x", "numbers": np.arange(3)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert (state["bytes"], state["numbers"].tolist()) == (b"x", [0, 1, 2])
        self.position = state["position"]


class Remembering:
    """A loader that keeps its position, and the order of its epoch, as torchdata's StatefulDataLoader does."""

    def __init__(self, **_: Any) -> None:
        self.order: list[int] | None = None

    def __iter__(self) -> Iterator[int]:
        self.order = torch.randperm(5).tolist() if self.order is None else self.order
        while self.order:
            yield self.order.pop()
        self.order = None

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order and [*self.order]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]


class Buckets(Sampler[list[int]]):
    """Batches whose order is drawn when an epoch begins."""

    def __init__(self, shuffle: Callable[[list[int]], None]) -> None:
        self.shuffle = shuffle
        self.generator = getattr(shuffle, "__self__", None)

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(SAMPLES))
        self.shuffle(order)
        return (order[start : start + BATCH] for start in range(0, SAMPLES, BATCH))


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def over(sampler: Callable[[Dataset[Any]], Any]) -> Make:
    return lambda **kw: DataLoader((data := Drawing()), BATCH, sampler=sampler(data), **kw)


DATA: dict[str, Make] = {
    "sequential": lambda **kw: DataLoader(Drawing(), BATCH, **kw),
    "shuffled": lambda **kw: DataLoader(Drawing(), BATCH, shuffle=True, **kw),
    "shuffled by the loader's generator": lambda **kw: DataLoader(
        Drawing(), BATCH, shuffle=True, generator=seeded(), **kw
    ),
    "augmented by the data set's generator": lambda **kw: DataLoader(Augmented(), BATCH, shuffle=True, **kw),
    "without the last": lambda **kw: DataLoader(Drawing(), BATCH, shuffle=True, drop_last=True, **kw),
    "with replacement": over(lambda data: RandomSampler(data, replacement=True, num_samples=70)),
    "by the sampler's generator": over(
        lambda data: RandomSampler(data, replacement=True, num_samples=70, generator=seeded())
    ),
    "in whole batches": over(lambda _: RandomSampler(range(9 * BATCH), generator=seeded())),  # type: ignore[arg-type]
    "weighted": over(lambda _: WeightedRandomSampler([1.0] * SAMPLES, SAMPLES)),
    "subset": over(lambda _: SubsetRandomSampler(range(30), generator=seeded())),
    "distributed": over(lambda data: DistributedSampler(data, 2, 1)),
    "single samples": lambda **kw: DataLoader(Drawing(), None, shuffle=True, **kw),
    "batches of a sampler": lambda **kw: DataLoader(
        torch.arange(SAMPLES),  # type: ignore[arg-type]
        None,
        sampler=BatchSampler(RandomSampler(range(SAMPLES)), BATCH, False),
        **kw,
    ),
    "buckets": lambda **kw: DataLoader(Drawing(), batch_sampler=Buckets(random.shuffle), **kw),
    "buckets by Python": lambda **kw: DataLoader(Drawing(), batch_sampler=Buckets(random.Random(3).shuffle), **kw),
    "buckets by NumPy": lambda **kw: DataLoader(
        Drawing(), batch_sampler=Buckets(np.random.default_rng(3).shuffle), **kw
    ),
    "ours": lambda **kw: DataLoader(
        (data := Drawing()), batch_sampler=DistributedBatchSampler(data, 2 * BATCH, 2, 1), **kw
    ),
    "stream": lambda **kw: DataLoader(Stream(), BATCH, **kw),
    "stream with a state": lambda **kw: DataLoader(Counting(), BATCH, **kw),
    "loader with a state": Remembering,
    "any iterable": lambda **_: [torch.tensor(number) for number in range(5)],
}


def cut(loader: ResumableLoader, make: Callable[[], Iterable[Any]]) -> ResumableLoader:
    """A process that goes on where another one ends. Until it does, it draws numbers of its own."""
    saved = values.encode([loader.state(), random_state.capture()])
    random_state.seed_all(random.randrange(2**32))
    other = ResumableLoader(make())
    torch.rand(3)
    position, generators = values.decode(saved)
    other.restore([position])
    random_state.restore(generators)
    return other


def trained(make: Callable[[], Iterable[Any]], cuts: set[int] = frozenset()) -> list[object]:  # type: ignore[assignment]
    """What a training gets and draws that is interrupted after these steps; after a whole epoch by its negative."""
    random_state.seed_all(SEED)
    loader, seen, epoch, step, left = ResumableLoader(make()), [], 0, 0, set(cuts)
    while epoch < EPOCHS:
        for batch in loader.batches(epoch):
            seen += [repr(batch), numbers()]
            step += 1
            if step in left:
                left.remove(step)
                loader = cut(loader, make)
                break
        else:
            epoch += 1
            loader = cut(loader, make) if -epoch in cuts else loader
    return seen


def drawn_cuts() -> set[int]:
    number = random.Random(SEED)  # Not the generator that is restored.
    return {1, *(number.randrange(1, 30) for _ in range(5)), *(number.choice((-1, -2)) for _ in range(1)), 9, 10}


@pytest.mark.parametrize("data", DATA)
def test_an_interrupted_training_gets_the_same_batches_and_draws_the_same_numbers(data: str) -> None:
    cuts = drawn_cuts()
    assert trained(DATA[data], cuts) == trained(DATA[data]), cuts


WORKERS = {"num_workers": 2, "multiprocessing_context": "fork"}
STAY = {**WORKERS, "persistent_workers": True, "prefetch_factor": 4}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("shuffled by the loader's generator", STAY),
        ("by the sampler's generator", WORKERS),
        ("in whole batches", WORKERS),
        ("ours", STAY),
        ("stream", WORKERS),
    ],
)
def test_what_workers_fetch_ahead_does_not_count_as_seen(data: str, options: dict[str, Any]) -> None:
    def make() -> Iterable[Any]:
        return DATA[data](**options)

    assert trained(make, {3, 9, 10, -2}) == trained(make)


def test_accelerates_loaders_go_on_as_well() -> None:
    """They fetch a batch ahead, so a batch with random numbers draws them before the interruption, or after it."""

    def make() -> Iterable[Any]:
        loader = DataLoader(torch.arange(SAMPLES), BATCH, shuffle=True)  # type: ignore[arg-type]
        return prepare_data_loader(loader, num_processes=2, process_index=1, use_seedable_sampler=True, data_seed=3)

    assert trained(make, {1, 4, 5, 8, -2}) == trained(make)


def test_what_was_seen_is_not_fetched_again() -> None:
    loader = ResumableLoader(DATA["shuffled"]())
    batches = loader.batches(0)
    for _ in range(7):
        next(batches)
    Drawing.fetched = 0
    rest = list(cut(loader, DATA["shuffled"]).batches(0))
    assert (len(rest), Drawing.fetched) == (3, SAMPLES - 7 * BATCH)


def begun(loaders: Sequence[Iterable[Any]], steps: int) -> tuple[list[dict[str, Any]], list[int]]:
    """The states of all ranks after some steps, and the samples that they have seen."""
    states, seen = [], []
    for rank, data in enumerate(loaders):
        loader = ResumableLoader(data, rank=rank, size=len(loaders))
        batches = loader.batches(4)
        seen += [int(index) for _ in range(steps) for index in next(batches)]
        states.append(loader.state())
    return states, seen


def rest(loaders: Sequence[Iterable[Any]], states: list[dict[str, Any]], steps: int | None = None) -> list[list[int]]:
    """What all ranks see after that, by rank; in place of the states, those after some steps."""
    seen, after = [], []
    for rank, data in enumerate(loaders):
        loader = ResumableLoader(data, rank=rank, size=len(loaders))
        loader.restore(states)
        batches = loader.batches(4)
        each = list(batches) if steps is None else [next(batches) for _ in range(steps)]
        seen.append([int(index) for batch in each for index in batch])
        after.append(loader.state())
    states[:] = after
    return seen


def distributed(size: int, batch: int, samples: int, *, drop_last: bool = False) -> list[DataLoader[Any]]:
    data: Any = torch.arange(samples)
    return [
        DataLoader(data, batch, sampler=DistributedSampler(data, size, rank, drop_last=drop_last))
        for rank in range(size)
    ]


@pytest.mark.parametrize(
    ("samples", "sizes"), [(48, (2, 4, 3)), (48, (4, 2, 1)), (48, (2, 2, 2)), (53, (2, 3, 5)), (53, (5, 1, 4))]
)
def test_other_ranks_go_on_with_what_a_distributed_sampler_has_left(
    samples: int, sizes: tuple[int, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, third = sizes
    states, seen = begun(distributed(first, 3, samples), 2)
    middle = rest(distributed(second, 2, samples), states, 2)
    capfd.readouterr()
    last = rest(distributed(third, 1, samples), states)
    count = Counter(chain(seen, *middle, *last))
    assert set(count) == set(range(samples)), "none is lost"
    assert count.total() - samples < third, "and only as many are seen twice as make the ranks' parts even"
    assert len({len(part) for part in last}) == 1
    said = capfd.readouterr().out
    repeated = count.total() - samples
    assert said.count("will be seen twice") == (repeated > 0)
    assert not repeated or f"epoch 5 goes on with {third} ranks instead of {second}: {repeated} sample" in said


def test_ranks_that_share_a_part_of_the_data_go_on_with_it() -> None:
    """As those of tensor parallelism do."""
    data: Any = torch.arange(48)

    def loaders(size: int, replicas: int) -> list[DataLoader[Any]]:
        samplers = (DistributedSampler(data, replicas, rank * replicas // size) for rank in range(size))
        return [DataLoader(data, 3, sampler=sampler) for sampler in samplers]

    for size, replicas in ((4, 2), (2, 2), (8, 4)):
        states, seen = begun(loaders(4, 2), 2)
        each = rest(loaders(size, replicas), states)
        assert each[0] == each[size // replicas - 1]
        assert Counter(chain(seen, *each[:: size // replicas], *each[:: size // replicas])) == Counter(
            [*range(48), *range(48)]
        )


def test_without_the_last_samples_none_is_seen_twice() -> None:
    states, seen = begun(distributed(2, 3, 53, drop_last=True), 2)
    last = rest(distributed(4, 3, 53, drop_last=True), states)
    assert set(Counter(chain(seen, *last)).values()) == {1}
    assert 53 - len(seen) - sum(map(len, last)) < 4


def test_the_batch_size_may_change_in_the_middle_of_an_epoch() -> None:
    def make(batch: int) -> DataLoader[Any]:
        return DataLoader(torch.arange(SAMPLES), batch, shuffle=True, generator=seeded())  # type: ignore[arg-type]

    states, seen = begun([make(4)], 3)
    assert [*seen, *rest([make(7)], states)[0]] == begun([make(SAMPLES)], 1)[1]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _: DATA["shuffled"](), "RandomSampler cannot divide the rest of the epoch anew"),
        (lambda _: DATA["any iterable"](), "list cannot divide the rest of the epoch anew"),
        (lambda size: distributed(size, 4, 37 + size)[0], "DistributedSampler yields another order than before"),
    ],
)
def test_where_other_ranks_cannot_go_on_the_epoch_begins_again_and_that_is_said_once(
    make: Callable[[int], Iterable[Any]], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    loader = ResumableLoader(make(2), rank=0, size=2)
    next(loader.batches(0))
    states = [loader.state()] * 2
    for rank in range(3):
        other = ResumableLoader(make(3), rank=rank, size=3)
        other.restore(states)
        assert len(list(other.batches(0))) == len(list(make(3)))  # type: ignore[call-overload]
    assert (said := capfd.readouterr().err).count("epoch 1 begins again") == 1
    assert reason in said


def test_a_sampler_that_shares_its_generator_with_the_model_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    class Lazy(Buckets):
        def __iter__(self) -> Iterator[list[int]]:
            return ([random.randrange(SAMPLES) for _ in range(8)] for _ in range(5))

    def make() -> Iterable[Any]:
        return DataLoader(Drawing(), batch_sampler=Lazy(random.shuffle))

    loader = ResumableLoader(make())
    batches = loader.batches(0)
    for _ in range(3):
        next(batches)
    assert len(list(cut(loader, make).batches(0))) == 2
    assert "Lazy yields other indices than before" in capfd.readouterr().err


def test_a_loader_of_another_kind_begins_the_epoch_again(capfd: pytest.CaptureFixture[str]) -> None:
    loader = ResumableLoader(DATA["shuffled"]())
    next(loader.batches(0))
    assert len(list(cut(loader, DATA["ours"]).batches(0))) == 5
    assert "its position was saved for another kind of loader than DataLoader" in capfd.readouterr().err


def test_a_save_before_the_first_batch_after_a_resumption_keeps_the_position() -> None:
    loader = ResumableLoader(DATA["shuffled"]())
    next(loader.batches(0))
    assert len(list(cut(cut(loader, DATA["shuffled"]), DATA["shuffled"]).batches(0))) == 9


class Own(DataLoader[Any]):
    """A loader with an iterator of its own, as timm's and Ultralytics' have."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return iter([torch.tensor(number) for number in range(4)])


def test_a_subclass_that_does_not_use_its_sampler_is_fetched_again() -> None:
    assert trained(lambda: Own(Drawing(), BATCH), {2, 3, 6}) == trained(lambda: Own(Drawing(), BATCH))


def test_an_iterator_resumes_epochs_only_and_is_named_once(capfd: pytest.CaptureFixture[str]) -> None:
    def make() -> Iterator[int]:
        return iter(range(6))

    loader = ResumableLoader(make())
    assert loader.unknown
    batches = loader.batches(0)
    next(batches)
    loader.state()
    loader.state()
    assert capfd.readouterr().err.count("the position in range_iterator is unknown") == 1
    assert len(list(cut(loader, make).batches(0))) == 6
    assert "epoch 1 begins again" in capfd.readouterr().err


def test_batches_out_of_order_have_no_position() -> None:
    unknown = ResumableLoader(DataLoader(Drawing(), num_workers=2, in_order=False)).unknown
    assert unknown
    assert "use in_order=True" in unknown


def test_a_state_that_is_not_plain_is_refused_by_name() -> None:
    class Foreign(Counting):
        def state_dict(self) -> dict[str, Any]:
            return {"lock": {1, 2}}

    loader = ResumableLoader(DataLoader(Foreign()))
    next(loader.batches(0))
    with pytest.raises(ConfigError, match=r"^state_dict\(\) of Foreign cannot be saved: a set "):
        loader.state()


def test_a_state_of_another_class_begins_the_epoch_again(capfd: pytest.CaptureFixture[str]) -> None:
    loader = ResumableLoader(Remembering())
    next(loader.batches(0))
    assert len(list(cut(loader, lambda: DataLoader(Counting())).batches(0))) == SAMPLES
    assert "its position was saved for Remembering, and cannot be restored for Counting" in capfd.readouterr().err


def test_a_state_that_the_loader_refuses_is_a_mistake_and_says_so() -> None:
    def make() -> Iterable[Any]:
        return DataLoader(Counting())

    loader = ResumableLoader(make())
    next(loader.batches(0))
    state = loader.state()
    other = ResumableLoader(make())
    other.restore([state | {"state": {}}])
    with pytest.raises(ConfigError, match=r"^load_state_dict\(\) of Counting refused its position .* \(KeyError"):
        next(other.batches(0))


def test_an_epoch_without_batches_names_the_rank() -> None:
    with pytest.raises(ConfigError, match=r"the loader of rank 3 .* has no batch in epoch 3"):
        list(ResumableLoader([], rank=3, size=4).batches(2))


def test_a_rank_that_ended_early_has_no_batch_left_and_the_other_goes_on() -> None:
    loaders = [DataLoader(torch.arange(samples), 1) for samples in (3, 5)]  # type: ignore[arg-type]
    states = []
    for rank, data in enumerate(loaders):
        loader = ResumableLoader(data, rank=rank, size=2)
        batches = loader.batches(0)
        assert [next(batches, None) is None for _ in range(4)] == [False, False, False, rank == 0]
        states.append(loader.state())
    for rank, data in enumerate(loaders):
        loader = ResumableLoader(data, rank=rank, size=2)
        loader.restore(states)
        assert len(list(loader.batches(0))) == rank
        assert len(list(loader.batches(1))) == (3, 5)[rank]


def test_a_script_that_iterates_by_itself_has_epochs_only() -> None:
    loader = ResumableLoader(None)
    assert loader.state()["kind"] == "none"
    with pytest.raises(ConfigError, match="there is no loader"):
        next(loader.batches(0))


def test_a_sampler_shows_what_it_has_while_it_is_followed_and_can_be_copied() -> None:
    data: Any = torch.arange(8)
    followed = FollowedSampler(DistributedSampler(data, 2, 1), Handed())
    assert (followed.rank, followed.num_samples, copy(followed).sampler) == (1, 4, followed.sampler)
    with pytest.raises(AttributeError, match="nothing"):
        followed.nothing  # noqa: B018  (asked for only)


def test_set_epoch_is_called_wherever_it_is() -> None:
    class Epochal(Drawing):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    data = Epochal()
    sampler = DistributedSampler(data, 2, 0)
    loader = ResumableLoader(DataLoader(data, BATCH, sampler=sampler))
    orders = [repr([index for index, _ in loader.batches(epoch)]) for epoch in (0, 1)]
    assert (data.epoch, sampler.epoch) == (1, 1)
    assert orders[0] != orders[1]


def test_fetching_again_is_said_if_it_takes_long(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = ResumableLoader(DATA["any iterable"]())
    batches = loader.batches(0)
    for _ in range(3):
        next(batches)
    list(cut(loader, DATA["any iterable"]).batches(0))
    assert capfd.readouterr().out == ""
    monkeypatch.setattr(replay_tracker, "PATIENCE_SECONDS", -1.0)
    list(cut(loader, DATA["any iterable"]).batches(0))
    assert capfd.readouterr().out.count("fetching 3 batches of epoch 1 again, because list cannot skip them") == 1


def test_a_loader_that_has_less_now_goes_on_with_the_next_epoch(capfd: pytest.CaptureFixture[str]) -> None:
    loader = ResumableLoader([1, 2, 3])
    batches = loader.batches(0)
    assert [next(batches), next(batches), next(batches)] == [1, 2, 3]
    assert list(cut(loader, lambda: [1, 2]).batches(0)) == []
    assert "had seen 3 batches of epoch 1, but its loader (list) has only 2 now" in capfd.readouterr().err


def test_a_position_in_what_a_distributed_sampler_yields_is_small() -> None:
    states, _ = begun(distributed(2, 3, 53), 2)
    assert len(values.encode(states[0])) < 1000

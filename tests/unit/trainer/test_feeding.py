"""The input of a run: how many steps it has, and what each rank gets of them."""

import itertools
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.world import World
from ddpjob_trainer.config import read_config
from ddpjob_trainer.data import feed as feed_module
from ddpjob_trainer.data import feeding
from ddpjob_trainer.data import loader as loader_module
from ddpjob_trainer.data.explaining import explain_shards
from ddpjob_trainer.data.feed import Uneven
from ddpjob_trainer.data.loader import Loader, sample_count
from ddpjob_trainer.recording.position import Position
from ddpjob_trainer.task import Task
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, TensorDataset

CPU = torch.device("cpu")


class Numbers(Task):
    batch_size = 4
    workers = None

    def model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def train_data(self) -> TensorDataset:
        return TensorDataset(torch.arange(50.0).unsqueeze(1), torch.arange(50))


class OfItsOwn(Numbers):
    """Rank 0 has two batches in an epoch, rank 1 three."""

    def train_loader(self, rank: int, world_size: int) -> Any:  # noqa: ARG002  (the interface has it)
        return [(torch.full((4, 1), 10.0 * rank + number), None) for number in range(2 + rank)]


class Left:
    """A feed of which only the number of steps is known; None: not even that."""

    def __init__(self, steps: int | None) -> None:
        self._steps = steps

    def left(self, samples: int = 0) -> int | None:
        return None if self._steps is None else self._steps - samples // 4


@pytest.mark.parametrize(
    ("position", "epochs", "most", "whole", "total"),
    [
        (Position(0, 1, 0), 3, None, 10, 30),
        (Position(17, 2, 28), 3, None, 10, 30),
        (Position(10, 2, 0), 2, None, 10, 20),
        (Position(20, 3, 0), 2, None, 10, 20),
        (Position(0, 1, 0), 3, 25, 10, 25),
        (Position(0, 1, 0), 3, 35, 10, 30),
        (Position(28, 3, 32), 3, 25, 10, 28),
        (Position(5, 1, 20), None, 40, 10, 40),
        (Position(50, 1, 20), None, 40, 10, 50),
        (Position(5, 1, 20), 3, 40, None, 40),
        (Position(50, 3, 0), 2, None, None, 50),
    ],
)
def test_the_last_step_is_that_of_the_epochs_but_at_most_as_many_as_asked(
    position: Position, epochs: int | None, most: int | None, whole: int | None, total: int
) -> None:
    feed: Any = Left(whole)
    assert feeding.total_steps(position, feed, epochs, most) == total


def test_without_a_length_the_number_of_steps_must_be_named() -> None:
    feed: Any = Left(None)
    for epochs in (3, None):
        with pytest.raises(ConfigError, match="set the number of steps with --max-steps"):
            feeding.total_steps(Position(), feed, epochs, None)


@pytest.mark.parametrize(
    ("flags", "world_size", "whole"),
    [
        ([], 1, 4),
        ([], 3, 12),
        (["--batch-size", "5"], 2, 10),
        (["--batch-size", "5", "--gradient-accumulation-steps", "3"], 2, 30),
        (["--gradient-accumulation-steps", "3"], 2, 24),
        (["--global-batch-size", "7", "--gradient-accumulation-steps", "3"], 2, 7),
    ],
)
def test_a_step_takes_a_batch_of_each_process_or_the_global_one(
    flags: list[str], world_size: int, whole: int
) -> None:
    config = read_config(flags, {})
    task = Numbers(config)
    orders = [
        feeding.order_of(config, task, task.train_data(), World(rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert {order.global_batch for order in orders} == {whole}
    assert sum(order.batch_size for order in orders) == whole


@pytest.mark.parametrize(("flags", "of_task", "workers"), [([], None, 6), ([], 2, 2), (["--workers", "0"], 2, 0)])
def test_samples_are_fetched_by_as_many_workers_as_asked_or_as_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], of_task: int | None, workers: int
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(feeding, "threads_of_each", lambda ranks: 12 // ranks)
    config = read_config(flags, {})
    task = Numbers(config)
    task.workers = of_task
    assert feeding._workers(config, task, World(local_world_size=2, world_size=4)) == workers
    monkeypatch.setattr(torch, "get_num_threads", lambda: 9)
    assert feeding._workers(config, task, World(local_world_size=2, world_size=4)) == (9 if workers == 6 else workers)


def test_of_a_data_set_each_rank_trains_on_its_part_in_the_order_of_the_seed() -> None:
    config = read_config(["--seed", "3"], {})
    feeds: list[Any] = [
        feeding.feeding(config, Numbers(config), World(rank=rank, world_size=2))(CPU) for rank in range(2)
    ]
    first, second = feeds
    assert (first.global_batch, first.batch_size, first.left(), first.left(40)) == (8, 4, 6, 1)
    assert (first.data().seed, first.data().length) == (3, 50)
    seen = []
    for feed in feeds:
        for step in feed.steps(2, 16, 3):
            inputs, target = next(step.batches)
            assert step.weight == 1.0
            assert inputs.squeeze(1).tolist() == target.tolist() == step.samples.tolist()
            seen += target.tolist()
    assert len(set(seen)) == len(seen) == 3 * 8
    assert len(list(first.steps(2, 16, 100))) == 4, "no more than are left"
    assert not torch.equal(first.first()[1], second.first()[1])


@pytest.fixture
def uneven(monkeypatch: pytest.MonkeyPatch) -> list[Uneven]:
    """The feeds of two ranks, of which each knows both lengths."""
    monkeypatch.setattr(feed_module, "all_gather", lambda _, world: [2, 3][: world.world_size])
    config = read_config([], {})
    feeds: list[Any] = [
        feeding.feeding(config, OfItsOwn(config), World(rank=rank, world_size=2))(CPU) for rank in range(2)
    ]
    return feeds


def test_a_rank_without_a_batch_repeats_one_that_does_not_count(uneven: list[Uneven]) -> None:
    told = [
        [(next(step.batches)[0].flatten()[0].item(), step.weight) for step in feed.steps(1, 0, 10)] for feed in uneven
    ]
    assert told == [[(0.0, 1.0), (1.0, 1.0), (0.0, 0.0)], [(10.0, 1.0), (11.0, 1.0), (12.0, 2.0)]]
    assert [(feed.batch_size, feed.global_batch, feed.left(), feed.left(8), feed.left(99)) for feed in uneven] == [
        (4, 8, 3, 2, 0)
    ] * 2
    assert uneven[1].first()[0].flatten()[0] == 10.0
    assert (uneven[1].data().seed, uneven[1].data().length) == (0, None)
    again = [(next(step.batches)[0].flatten()[0].item(), step.weight) for step in uneven[1].steps(2, 16, 10)]
    assert again == [(12.0, 2.0)], "after two steps of all ranks"
    assert len(list(uneven[1].steps(1, 0, 2))) == 2


def test_a_loader_that_does_not_keep_to_its_length_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Batches(list[Any]):
        claims = 2

        def __len__(self) -> int:
            return self.claims

    for given, said in ((1, "has 2 batches, and has only 1"), (3, "has 2 batches, and has more")):
        monkeypatch.setattr(feed_module, "all_gather", lambda mine, _: [mine])
        loader = Batches([(torch.zeros(1), None)] * given)
        feed = Uneven(loader, World(), CPU, batch_size=1, seed=0)
        with pytest.raises(ConfigError, match=f"train_loader of rank 0 says that it {said}"):
            list(feed.steps(1, 0, 10))


def test_a_loader_without_a_length_is_counted_step_by_step() -> None:
    class Stream:
        begun = 0

        def __iter__(self) -> Iterator[Any]:
            self.begun += 1
            # Looked at, begun for the warm-up, iterated for one epoch; then it gives nothing more.
            return iter([(torch.zeros(1), None)] * (3 if self.begun < 4 else 0))

    feed = Uneven(Stream(), World(), CPU, batch_size=1, seed=0)
    assert feed.left() is None
    assert [step.weight for step in feed.steps(1, 0, 10)] == [1.0, 1.0, 1.0]
    with pytest.raises(ConfigError, match="no batch for any process in epoch 2: it must start again"):
        list(feed.steps(2, 0, 10))


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (iter([(1, 2)]), "returns a list_iterator, which can be iterated only once"),
        ([], "train_loader has no batch for rank 0: each rank needs one in each epoch"),
    ],
)
def test_a_loader_that_gives_nothing_is_refused_at_once(loader: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Uneven(loader, World(), CPU, batch_size=1, seed=0)


def test_a_loader_of_its_own_gets_its_sampler_told_the_epoch() -> None:
    sampler: Any = DistributedSampler(range(4), 1, 0)
    loader: Any = DataLoader(TensorDataset(torch.arange(4), torch.arange(4)), sampler=sampler)
    feed = Uneven(loader, World(), CPU, batch_size=1, seed=0)
    orders = [[int(next(step.batches)[0]) for step in feed.steps(epoch, 0, 4)] for epoch in range(1, 6)]
    assert sampler.epoch == 5
    assert len(set(map(tuple, orders))) > 1


@pytest.mark.parametrize("flags", [["--global-batch-size", "8"], ["--gradient-accumulation-steps", "2"]])
def test_flags_that_divide_a_data_set_do_not_go_with_a_loader_of_ones_own(flags: list[str]) -> None:
    config = read_config(flags, {})
    with pytest.raises(ConfigError, match="are for train_data: a train_loader makes its own batches"):
        feeding.feeding(config, OfItsOwn(config), World())


def test_a_sampler_over_another_data_set_is_told_whatever_it_calls_it() -> None:
    data = TensorDataset(torch.zeros(10))
    for sampler in (RandomSampler(range(8)), DistributedSampler(range(8), 1, 0)):
        with pytest.raises(ConfigError, match="has 10 samples, but its sampler is over another data set of 8"):
            feeding.check_sampler(DataLoader(data, sampler=sampler))  # type: ignore[arg-type]
    feeding.check_sampler(DataLoader(data, sampler=RandomSampler(range(10))))
    feeding.check_sampler([])


def test_which_rank_sees_which_sample_is_printed_for_the_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    config = read_config(["--workload", f"{__name__}:Numbers", "--batch-size", "3"], {})
    explain_shards(config, 2, 2)
    first, *shards = capsys.readouterr().out.splitlines()
    assert first == (
        "50 samples for 2 processes: 8 steps in an epoch, 6 samples in a step, 2 left out, different ones "
        "in each epoch"
    )
    assert [line.rpartition(" ")[0] for line in shards] == [
        f"shard epoch=1 step={step} rank={rank}" for step in (1, 2) for rank in (0, 1)
    ]
    numbers = [number for line in shards for number in line.rpartition("=")[2].split(",")]
    assert len(set(numbers)) == len(numbers) == 12


class Length:
    """What can be indexed as far as anybody knows."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class Unsized(Dataset[int]):
    pass


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (DataLoader(TensorDataset(torch.zeros(2))), "DataLoader is not a data set: give the data set that it loads"),
        (Endless(), "Endless cannot be indexed: have the task's train_loader return batches"),
        (Unsized(), "Unsized has no length: a task's data must have a length and be indexed"),
        (Length(0), "Length is empty: a task's data must have samples"),
        (Length(1), None),
    ],
)
def test_a_data_set_has_samples_that_can_be_counted(data: Any, said: str | None) -> None:
    if said is None:
        assert sample_count(data) == 1
        return
    with pytest.raises(ConfigError, match=f"^{said}"):
        sample_count(data)


def test_a_worker_leaves_signals_to_its_rank_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(signal, "signal", lambda *how: ignored.append(how))
    monkeypatch.setattr(loader_module, "die_with", ignored.append)
    loader_module._become_worker(4711, 0)
    assert ignored == [(signal.SIGTERM, signal.SIG_IGN), (signal.SIGINT, signal.SIG_IGN), 4711]


class Unreadable(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, _: int) -> Any:
        raise TrainerError("the image 7 cannot be read")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_cannot_be_read_is_the_datas_own_error_wherever_it_is_read(workers: int) -> None:
    loader = Loader(Unreadable(), seed=0, device=CPU, workers=workers)
    with pytest.raises(TrainerError, match=r"^the image 7 cannot be read$"):
        loader.batch(torch.arange(2))


def test_what_a_loader_of_ones_own_gives_cannot_be_explained() -> None:
    config = read_config(["--workload", f"{__name__}:OfItsOwn"], {})
    with pytest.raises(ConfigError, match="--explain-shards needs train_data"):
        explain_shards(config, 2, 1)

"""What is heard of the evaluations of a program that reports none, with modules that are as PyTorch's."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ddpjob_rank.reporting import bars_seen, evaluations_seen, steps_seen
from ddpjob_rank.reporting import report as reporting
from ddpjob_supervisor.watch.beat import Beat
from ddpjob_supervisor.watch.heartbeats import Heartbeats
from tqdm import tqdm

from tests.unit.rank.told import a_rank, beat_of, told_at


class Module:
    """As torch.nn.Module, with two parameters unless others are given."""

    def __init__(self, *parameters: object) -> None:
        self.held = parameters or (object(), object())
        self.training = True

    def parameters(self) -> Iterator[object]:
        yield from self.held

    def train(self, mode: bool = True) -> Any:  # noqa: FBT001, FBT002  as PyTorch has it
        self.training = mode
        return self

    def eval(self) -> Any:
        return self.train(False)


class Batches:
    """As the iterators of a DataLoader."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        return 7


PLAIN = Batches.__next__


class Optimizer:
    """As torch.optim's, with a group for each parameter."""

    def __init__(self, model: Module) -> None:
        self.state: dict[object, object] = {}
        self.param_groups = [{"params": [parameter]} for parameter in model.parameters()]


class Program:
    """One that trains a model."""

    def __init__(self, heartbeats: Heartbeats) -> None:
        self.heartbeats = heartbeats
        self.model, self.batches = Module(), Batches()
        self.optimizer = Optimizer(self.model)

    def step(self) -> None:
        steps_seen.COUNTER(self.optimizer, (), {})

    def fetch(self) -> Beat:
        """What its supervisor hears of it as it fetches a batch."""
        assert next(self.batches) == 7
        return beat_of(self.heartbeats)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Program]:
    modules, loaders = ModuleType(evaluations_seen.MODULES), ModuleType(evaluations_seen.LOADERS)
    modules.Module, loaders._BaseDataLoaderIter = Module, Batches  # type: ignore[attr-defined]
    monkeypatch.setattr(Module, "eval", Module.eval)
    monkeypatch.setattr(Batches, "__next__", PLAIN)
    monkeypatch.setattr(steps_seen, "COUNTER", steps_seen._Counter())
    monkeypatch.setattr(evaluations_seen, "COUNTER", steps_seen.COUNTER)
    heard = evaluations_seen.HeardEvaluation()
    for module in (evaluations_seen, bars_seen):
        monkeypatch.setattr(module, "HEARD", heard)
    for module in (modules, loaders):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with a_rank(monkeypatch, tmp_path) as heartbeats:
        evaluations_seen.install()
        yield Program(heartbeats)


def test_an_evaluation_is_heard_from_its_first_batch_until_the_model_trains_again(program: Program) -> None:
    program.step()
    assert program.fetch().activity == "training"
    assert program.model.eval() is program.model
    assert beat_of(program.heartbeats).activity == "training"
    heard = program.fetch()
    assert (heard.activity, heard.announces) == ("evaluation", False)
    program.model.train()
    assert program.fetch().activity == "training"


def test_a_save_after_an_evaluation_that_was_only_heard_does_not_make_it_reported(program: Program) -> None:
    program.step()
    program.model.eval()
    program.fetch()
    with reporting.activity("saving"):
        assert beat_of(program.heartbeats).activity == "saving"
    heard = beat_of(program.heartbeats)
    assert (heard.activity, heard.announces) == ("evaluation", False)
    program.model.train()
    assert program.fetch().activity == "training"


def test_each_batch_of_an_evaluation_shows_that_it_goes_on(program: Program) -> None:
    program.step()
    program.model.eval()
    program.fetch()
    at = told_at()
    program.fetch()
    assert told_at() > at


def test_after_the_next_step_loaders_run_as_they_were(program: Program) -> None:
    program.step()
    program.model.eval()
    program.fetch()
    assert Batches.__next__ is not PLAIN
    program.step()
    assert program.fetch().activity == "training"
    assert Batches.__next__ is PLAIN


def test_a_second_evaluation_is_heard_as_the_first_was(program: Program) -> None:
    for _ in range(2):
        program.step()
        program.model.eval()
        assert program.fetch().activity == "evaluation"


def test_a_program_that_trains_in_evaluation_mode_trains(program: Program) -> None:
    program.step()
    program.model.eval()
    for _ in range(3):
        program.step()
        assert program.fetch().activity == "training"


@pytest.mark.parametrize(
    "other",
    [
        lambda model: Module(),  # noqa: ARG005
        lambda model: Module(model.held[0]),
        lambda model: Module(model.held[1]),
        lambda model: SimpleNamespace(parameters=None),  # noqa: ARG005
    ],
    ids=["a teacher", "its first layer", "its last layer", "what has no parameters"],
)
def test_only_the_evaluation_of_the_model_that_is_trained_is_heard(program: Program, other: Any) -> None:
    program.step()
    evaluated = other(program.model)
    Module.eval(evaluated) if isinstance(evaluated, Module) else None
    assert not steps_seen.COUNTER.trains(evaluated)
    assert program.fetch().activity == "training"


def test_before_the_first_step_nothing_is_heard(program: Program) -> None:
    program.model.eval()
    next(program.batches)
    assert program.heartbeats.read() == [None]


def test_an_activity_that_the_program_reports_stays(program: Program) -> None:
    program.step()
    reporting.report(activity="exporting")
    program.model.eval()
    assert program.fetch().activity == "exporting"


def test_of_a_program_that_reports_its_evaluations_the_batches_only_show_that_they_go_on(program: Program) -> None:
    program.step()
    program.model.eval()
    reporting.report(activity="evaluation")
    at = told_at()
    assert program.fetch().activity == "evaluation"
    assert told_at() > at
    program.model.train()
    assert program.fetch().activity == "evaluation"
    reporting.report(activity="training")
    program.model.eval()
    assert program.fetch().activity == "training"


@pytest.mark.parametrize(("moved", "activity"), [(1, "evaluation"), (0, "training")])
def test_a_bar_that_moves_shows_an_evaluation_too(program: Program, moved: int, activity: str) -> None:
    program.step()
    program.model.eval()
    bar: tqdm[int] = tqdm(range(10), file=io.StringIO())
    bar.n += moved
    bars_seen.Bars().look(bar)
    assert beat_of(program.heartbeats).activity == activity


def test_a_model_that_is_gone_is_not_evaluated(program: Program) -> None:
    program.step()
    program.model.eval()
    program.fetch()
    program.model = Module()
    assert Batches.__next__ is not PLAIN
    program.fetch()
    assert Batches.__next__ is PLAIN


def test_without_a_supervisor_modules_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDPJOB_HEARTBEAT", raising=False)
    monkeypatch.setitem(sys.modules, evaluations_seen.MODULES, SimpleNamespace())  # type: ignore[arg-type]
    evaluations_seen.install()

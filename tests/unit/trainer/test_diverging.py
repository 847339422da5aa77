"""Steps that are not finite: what ends a run, what is left out, and that nothing of it is saved."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from ddpjob.checkpoint.finite import check_parameters, finite_parameters
from ddpjob_rank.errors import ConfigError, DivergedError
from ddpjob_rank.world import World
from ddpjob_trainer.config import TrainConfig
from ddpjob_trainer.model.divergence import Gradients, StepOutcome, Watch
from ddpjob_trainer.model.learner import Learner
from ddpjob_trainer.model.parallel import averaged
from ddpjob_trainer.options import OnDivergence
from ddpjob_trainer.task import Task
from ddpjob_trainer.train import train_step
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import TensorDataset

from tests.training.states import tensors

NAN, INF = math.nan, math.inf
SAMPLES, POISONED = 64, 37


class Poisoned(Task):
    """A line through points, of which one is not a number."""

    epochs = 2
    batch_size = 4
    momentum = 0.9

    def model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        # A mask: infinite from the beginning, and never trained.
        model.register_buffer("mask", torch.full((2,), -INF))
        return model

    def train_data(self) -> Any:
        x = torch.linspace(0, 1, SAMPLES).unsqueeze(1)
        y = 2 * x
        y[POISONED] = NAN
        return TensorDataset(x, y)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.mse_loss(output, target)


# What a step does, on one process.


def number(value: float) -> Tensor:
    return torch.tensor(value)


def look_at(
    choice: OnDivergence, *steps: tuple[float | None, bool], rank: int = 0, scaled: bool = False
) -> int | None:
    """After which of these steps, each a loss and whether the gradients are finite, the run ends."""
    watch = Watch(choice, World(rank=rank, world_size=2), scaled=scaled)
    for step, (loss, finite) in enumerate(steps, 1):
        outcome = StepOutcome(None if loss is None else number(loss), torch.tensor(finite))
        watch.add(step, torch.tensor([3, 1]), outcome)
        try:
            watch.look_back(step)
        except DivergedError as error:
            return step if "step 2 " in str(error) else None
    return None


FINE = (1.0, True)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_loss_is_looked_at_one_step_later_and_the_gradients_of_all_two(value: float) -> None:
    assert look_at("stop", FINE, (value, False), (NAN, False)) == 3
    assert look_at("stop", FINE, (1.0, False), (NAN, False), FINE) == 4, "those of the step before its consequence"
    assert look_at("stop", FINE, (None, False), FINE, FINE, FINE) == 4, "of what did not count here"
    assert look_at("stop", FINE, FINE, FINE, (None, True)) is None


def test_only_a_loss_that_left_the_gradients_finite_ends_a_run_that_leaves_steps_out() -> None:
    assert look_at("skip", FINE, (NAN, False), FINE, FINE) is None
    assert look_at("skip", FINE, (NAN, True), FINE) == 3, "the others cannot know"


def test_infinite_gradients_are_the_scalers_business() -> None:
    assert look_at("stop", FINE, (1.0, False), FINE, FINE, scaled=True) is None
    assert look_at("stop", FINE, (NAN, False), FINE, scaled=True) == 3
    assert look_at("skip", FINE, (NAN, False), FINE, FINE, scaled=True) is None


def test_a_run_that_ignores_it_computes_nothing_for_it() -> None:
    assert look_at("ignore", FINE, (NAN, False), FINE, FINE) is None


def test_a_hundred_steps_left_out_in_a_row_are_too_many() -> None:
    watch = Watch("skip", World(), scaled=False)
    for step in range(1, 100):
        watch.add(step, None, StepOutcome(number(NAN), torch.tensor(data=False)))
        watch.look(own=step)
    watch.add(100, None, StepOutcome(number(NAN), torch.tensor(data=False)))
    with pytest.raises(DivergedError, match="the last 100 steps up to step 100 had to be left out"):
        watch.look(own=100)


class Twice(nn.Module):
    """A weight, statistics, and a count that is replaced in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.norm = nn.Linear(1, 1), nn.BatchNorm1d(1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls: Tensor = self.calls + 1
        y: Tensor = self.norm(self.line(x))
        return y


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1, "dampening": 0.5},
    **{name: {} for name in ("Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "Rprop")},
    "RMSprop": {"momentum": 0.9},
}


def a_learner(name: str = "SGD", choice: OnDivergence = "skip", *, scaler: bool = False, **options: Any) -> Learner:
    torch.manual_seed(0)
    model = Twice()
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, **options)
    return Learner(
        model,
        model,
        optimizer,
        None,
        GradScaler("cpu", init_scale=4.0) if scaler else None,
        averaged(model, 0.5),
        on_divergence=choice,
        gradients=Gradients(model, optimizer),
    )


class Square(Poisoned):
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output * target).square().mean()


def step(learner: Learner, *values: float, weight: float = 1.0) -> StepOutcome:
    x = torch.tensor(values).unsqueeze(1)
    return train_step(Square(TrainConfig()), learner, iter([(x, x)]), weight=weight)


def all_of(learner: Learner) -> dict[str, Tensor]:
    assert learner.average
    parts = (learner.model.state_dict(), learner.optimizer.state_dict(), learner.average.module.state_dict())
    return {name: value.clone() for name, value in tensors(dict(enumerate(parts))).items()}


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_left_out_leaves_weights_statistics_average_and_optimizer_as_they_were(name: str) -> None:
    options = OPTIMIZERS[name]
    marred, calm = a_learner(name, **options), a_learner(name, "ignore", **options)
    for values in ((NAN, 1.0), (1.0, 2.0), (INF, 1.0), (3.0, 5.0)):
        before = all_of(marred)
        outcome = step(marred, *values)
        if math.isfinite(values[0]):
            step(calm, *values)
            assert bool(outcome.finite)
        else:
            assert not bool(outcome.finite)
            assert same(all_of(marred), before)
        assert same(all_of(marred), all_of(calm))


def test_what_fp16_leaves_out_leaves_statistics_as_they_were_too() -> None:
    learner = a_learner(scaler=True)
    step(learner, 1.0, 2.0)
    before = all_of(learner)
    assert not bool(step(learner, NAN, 1.0).finite)
    assert same(all_of(learner), before)


@pytest.mark.parametrize(("scaler", "counted"), [(False, 3), (True, 2)])
def test_the_schedule_counts_a_step_that_is_left_out_unless_it_is_by_fp16s_scaler(
    counted: int, *, scaler: bool
) -> None:
    learner = a_learner(scaler=scaler)
    learner = replace(learner, scheduler=StepLR(learner.optimizer, step_size=1))
    for values in ((1.0, 2.0), (NAN, 1.0), (3.0, 5.0)):
        step(learner, *values)
    assert learner.scheduler
    assert learner.scheduler.last_epoch == counted


class Counting(torch.optim.SGD):
    """Counts its steps in its group."""

    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["k"] = self.param_groups[0].get("k", 0) + 1
        return super().step(closure)


class Noting(torch.optim.SGD):
    """Counts its steps in its state."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["step"] = self.state[parameter].get("step", 0) + 1
        return super().step(closure)


class Elsewhere(torch.optim.SGD):
    """Keeps something on another device than the model's."""

    def step(self, closure: Any = None) -> Any:
        self.state[self.param_groups[0]["params"][0]]["step"] = torch.ones((), device="meta")
        return super().step(closure)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (
            Counting,
            "Counting cannot be left out, because it keeps a number in its parameter groups that changes",
        ),
        (Noting, "Noting cannot be left out, because it keeps its step of type int"),
        (Elsewhere, "Elsewhere cannot be left out, because it keeps its step on the meta"),
    ],
)
def test_an_optimizer_that_counts_elsewhere_is_refused_by_name(kind: type[Optimizer], what: str) -> None:
    model = Twice()
    optimizer = kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    learner = Learner(model, model, optimizer, None, on_divergence="skip", gradients=Gradients(model, optimizer))
    with pytest.raises(ConfigError, match=f"--on-divergence skip: a step of the optimizer {what}"):
        step(learner, 1.0, 2.0)


def gradients(learner: Learner) -> list[bool]:
    """Whether each is anything but zeros."""
    return [bool(parameter.grad.any()) for parameter in learner.model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("value", [NAN, INF])
def test_what_counts_nothing_leaves_no_trace_though_it_is_not_finite(value: float) -> None:
    learner = a_learner(choice="stop")
    before = all_of(learner)
    outcome = step(learner, value, 1.0, weight=0.0)
    assert bool(outcome.finite)
    assert outcome.loss is None
    assert gradients(learner) == [False] * 4, "each has one, of zeros"
    after = all_of(learner)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert step(learner, 1.0, 2.0).loss is not None
    assert any(gradients(learner))


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_one_number_of_one_gradient_is_enough(value: float, kind: torch.dtype) -> None:
    last = nn.Linear(2, 2).to(kind)
    model = nn.Sequential(nn.Linear(2, 2), last)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e30)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    assert bool(Gradients(model, optimizer).are_finite()), "large is not infinite"
    assert last.weight.grad is not None
    last.weight.grad[1, 0] = value
    assert not bool(Gradients(model, optimizer).are_finite())
    assert bool(Gradients(model, torch.optim.SGD(model[0].parameters(), lr=1.0)).are_finite()), "it is not used"


def test_gradients_of_few_rows_count_too() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    for value in (1.0, NAN):
        optimizer.zero_grad()
        (table(torch.tensor([1])) * value).sum().backward()
        assert bool(Gradients(table, optimizer).are_finite()) == math.isfinite(value)


def test_a_checkpoint_is_good_if_what_was_trained_and_finite_is_finite() -> None:
    model = nn.ParameterDict(
        {
            "weights": nn.Parameter(torch.ones(2, dtype=torch.bfloat16)),
            "penalty": nn.Parameter(torch.tensor([-INF])),
            "frozen": nn.Parameter(torch.ones(1), requires_grad=False),
            "none": nn.Parameter(torch.empty(0)),
        }
    )
    sound = finite_parameters(model)
    assert sound == {"weights", "none"}
    check_parameters({**model.state_dict(), "frozen": number(NAN)}, sound)
    with pytest.raises(DivergedError, match="these parameters of the model are not finite numbers: weights"):
        check_parameters({**model.state_dict(), "weights": torch.tensor([1.0, INF])}, sound)

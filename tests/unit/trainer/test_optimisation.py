"""Options of how the model learns."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ddpjob_examples.convnet import ConvNetTask
from ddpjob_examples.mlp import MlpTask
from ddpjob_rank.errors import ConfigError
from ddpjob_trainer.config import TrainConfig, read_config
from ddpjob_trainer.data.batches import divided, shares_of
from ddpjob_trainer.model.learner import Learner, check_optimizer
from ddpjob_trainer.model.parallel import averaged
from ddpjob_trainer.options import OptimisationConfig
from ddpjob_trainer.recording import step_times
from ddpjob_trainer.recording.step_times import StepTimes
from ddpjob_trainer.schedule import scheduled
from ddpjob_trainer.task import Task
from ddpjob_trainer.train import train_step
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

CPU = torch.device("cpu")


class Classifier(Task):
    """One weight, which is 0."""

    def model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def train_data(self) -> Any:
        raise NotImplementedError


class Mean(Classifier):
    """Its gradient is the mean of its inputs."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002  (the interface has it)
        return output.mean()


@dataclass
class Trained:
    """What trains by itself, step by step."""

    task: Task
    learner: Learner
    options: dict[str, Any]

    def step(self, batches: Iterator[Any], weight: float = 1.0) -> Tensor | None:
        return train_step(self.task, self.learner, batches, weight=weight, **self.options).loss

    @property
    def model(self) -> nn.Module:
        return self.learner.model


def trained_by(task: Task, *, scaler: bool = False, average: float | None = None, **options: Any) -> Trained:
    """At a rate of 1."""
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    learner = Learner(
        model,
        model,
        optimizer,
        torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5),
        GradScaler("cpu", init_scale=4.0) if scaler else None,
        averaged(model, average),
    )
    return Trained(task, learner, options)


def inputs(*values: list[float]) -> Iterator[tuple[Tensor, None]]:
    return ((torch.tensor(batch).unsqueeze(1), None) for batch in values)


def weight(trained: Trained) -> float:
    return trained.learner.model.weight.item()


def rate(trained: Trained) -> float:
    return float(trained.learner.optimizer.param_groups[0]["lr"])


def test_gradients_of_the_parts_of_a_step_add_up_to_that_of_the_whole() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 10.0]
    whole, parts = trained_by(Mean(TrainConfig())), trained_by(Mean(TrainConfig()), shares=shares_of(5, 2))
    losses = [whole.step(inputs(values)), parts.step(inputs(values[:3], values[3:]))]
    assert weight(whole) == pytest.approx(-4.0)
    assert weight(parts) == pytest.approx(-4.0)
    assert losses == [0.0, 0.0]
    assert parts.step(inputs(values[:3], values[3:])) == pytest.approx(-16.0)


def test_the_time_of_a_step_is_that_of_all_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(10)
    monkeypatch.setattr(step_times.time, "monotonic", lambda: next(clock))
    times = StepTimes(nn.Linear(1, 1), CPU)
    trained = trained_by(Mean(TrainConfig()), shares=shares_of(4, 2), times=times)
    times.start()
    trained.step(inputs([1.0, 2.0], [3.0, 4.0]))
    assert times.step() == {"data": 2.0, "forward": 2.0, "backward": 2.0, "optimizer": 1.0}


class Branching(nn.Module):
    """A branch that is for training only, beside a normalisation and a count of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.always = nn.Linear(1, 1)
        self.in_training = nn.Linear(1, 1)
        self.norm = nn.BatchNorm1d(1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        y: Tensor = self.norm(self.always(x))
        return y + self.in_training(x) if self.training else y


def test_a_step_that_counts_nothing_goes_through_all_of_the_model_and_leaves_no_trace_in_it() -> None:
    class Task(Mean):
        def model(self) -> nn.Module:
            return Branching()

    trained = trained_by(Task(TrainConfig()))
    before = {name: value.clone() for name, value in trained.model.state_dict().items()}
    assert trained.step(inputs([1.0, 3.0]), weight=0.0) is None
    without = [name for name, parameter in trained.model.named_parameters() if parameter.grad is None]
    assert without == [], "these had no gradient, which DistributedDataParallel takes for a mistake"
    assert all(torch.equal(value, before[name]) for name, value in trained.model.state_dict().items())
    assert trained.step(inputs([1.0, 3.0])) is not None
    assert {name: trained.model.state_dict()[name] for name in ("calls", "norm.num_batches_tracked")} == {
        "calls": 1,
        "norm.num_batches_tracked": 1,
    }


@pytest.mark.usefixtures("alone_in_a_group")
def test_processes_exchange_gradients_once_for_all_batches_of_a_step() -> None:
    task = Mean(TrainConfig())
    ddp, exchanged = DistributedDataParallel(task.model()), []

    def hook(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        exchanged.append(bucket.buffer().item())
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp.register_comm_hook(None, hook)
    learner = Learner(ddp.module, ddp, torch.optim.SGD(ddp.parameters(), lr=1.0), None)
    trained = Trained(task, learner, {"shares": shares_of(4, 4)})
    for _ in range(2):
        trained.step(inputs([1.0], [2.0], [3.0], [6.0]))
    assert exchanged == [3.0, 3.0]


def test_parts_have_the_sizes_of_their_shares() -> None:
    steps = [torch.arange(7), torch.arange(7)]
    sizes = [len(part) for part in divided(iter(steps), 3)]
    assert sizes == [3, 2, 2] * 2
    assert shares_of(7, 3) == (3 / 7, 2 / 7, 2 / 7)


def test_more_parts_than_samples_are_an_error() -> None:
    with pytest.raises(ConfigError, match="3 samples per step, too few for --gradient-accumulation-steps 4"):
        shares_of(3, 4)


@pytest.mark.parametrize("scaler", [False, True])
def test_a_gradient_is_clipped_as_it_is_without_the_scale_of_the_loss(*, scaler: bool) -> None:
    trained = trained_by(Mean(TrainConfig()), scaler=scaler, clip_grad_norm=0.5)
    trained.step(inputs([3.0]))
    assert weight(trained) == pytest.approx(-0.5, rel=1e-4)
    trained.step(inputs([0.25]))
    assert weight(trained) == pytest.approx(-0.5 - rate(trained) * 2 * 0.25, rel=1e-4)


def test_a_step_whose_gradient_is_infinite_changes_nothing_but_the_scale() -> None:
    trained = trained_by(Mean(TrainConfig()), scaler=True, average=0.5)
    trained.step(inputs([1.0]))
    before = (weight(trained), rate(trained), int(trained.learner.average.n_averaged))
    trained.step(inputs([float("inf")]))
    assert (weight(trained), rate(trained), int(trained.learner.average.n_averaged)) == before
    assert trained.learner.scaler.get_scale() == 2.0
    trained.step(inputs([1.0]))
    assert (weight(trained), rate(trained)) == (before[0] - before[1], before[1] / 2)


def test_the_average_moves_by_what_its_decay_leaves() -> None:
    trained = trained_by(Mean(TrainConfig()), average=0.75)
    weights = []
    for _ in range(3):
        trained.step(inputs([1.0]))
        weights.append(weight(trained))
    expected = weights[0]
    for value in weights[1:]:
        expected = 0.75 * expected + 0.25 * value
    assert trained.learner.evaluated.weight.item() == pytest.approx(expected)


def rates(steps: int, steps_per_epoch: int, default: Any, **asked: Any) -> list[float]:
    """The rate of each step."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = scheduled(optimizer, OptimisationConfig(**asked), default, steps, steps_per_epoch)
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule:
            schedule.step()
    return seen


@pytest.mark.parametrize(
    ("trained", "frozen", "said"),
    [
        (9, 0, ""),
        (8, 1, ""),
        (8, 0, "and never change: 8; if that is intended"),
        (6, 0, "and never change: 6, 7, 8; if that is intended"),
        (5, 0, "and never change: 5, 6, 7, …; if that is intended"),
    ],
)
@pytest.mark.parametrize("aloud", [True, False])
def test_parameters_that_are_computed_in_vain_are_named(
    capsys: pytest.CaptureFixture[str], trained: int, frozen: int, said: str, *, aloud: bool
) -> None:
    model = nn.ParameterList(torch.zeros(1) for _ in range(9))
    for parameter in list(model)[9 - frozen :]:
        parameter.requires_grad_(False)
    check_optimizer(torch.optim.SGD(list(model)[:trained], lr=1.0), model, aloud=aloud)
    told = capsys.readouterr().err
    assert (said in told) if said and aloud else not told


def test_an_optimizer_of_another_models_parameters_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="the task's optimizer has none of the model's parameters"):
        check_optimizer(torch.optim.SGD([nn.Parameter()], lr=1.0), nn.Linear(1, 1), aloud=False)


def test_a_cosine_falls_from_the_whole_rate_to_nothing() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    expected = []
    for _ in range(8):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    assert rates(8, 4, "cosineannealinglr") == pytest.approx(expected)


def test_steps_of_a_rate_are_counted_in_epochs() -> None:
    seen = rates(6, 2, "constant", lr_scheduler="steplr", lr_step_size=1, lr_gamma=0.5)
    assert seen == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_a_warm_up_rises_to_where_the_schedule_begins() -> None:
    assert rates(6, 2, "constant", lr_warmup_epochs=2) == pytest.approx([0.01, 0.2575, 0.505, 0.7525, 1.0, 1.0])
    after = rates(6, 2, "cosineannealinglr", lr_warmup_epochs=1)
    assert after[2:] == pytest.approx(rates(4, 2, "cosineannealinglr"))


def test_a_constant_rate_needs_no_schedule() -> None:
    assert scheduled(torch.optim.SGD([nn.Parameter()], lr=1.0), OptimisationConfig(), "constant", 6, 2) is None


def test_an_option_of_another_schedule_is_an_error() -> None:
    with pytest.raises(ConfigError, match="need --lr-scheduler steplr, but it is cosineannealinglr"):
        rates(6, 2, "cosineannealinglr", lr_step_size=1)


def test_a_workload_learns_as_it_says_unless_it_is_asked_otherwise() -> None:
    def group(task: type[Task], *flags: str) -> dict[str, Any]:
        made = task(read_config(flags, {}))
        return {key: made.optimizer(made.model()).param_groups[0][key] for key in ("lr", "momentum", "weight_decay")}

    assert group(ConvNetTask) == {"lr": 0.02, "momentum": 0.9, "weight_decay": 5e-4}
    assert group(MlpTask) == {"lr": 0.001, "momentum": 0.0, "weight_decay": 0.0}
    asked = ["--lr", "0.5", "--momentum", "0", "--weight-decay", "0.25"]
    assert group(ConvNetTask, *asked) == {"lr": 0.5, "momentum": 0.0, "weight_decay": 0.25}


def test_labels_are_smoothed_if_asked_to() -> None:
    output, target = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])
    smoothly = ["--label-smoothing", "0.25"]
    plain, smooth = (Classifier(read_config(flags, {})).loss(output, target) for flags in ([], smoothly))
    assert smooth == nn.functional.cross_entropy(output, target, label_smoothing=0.25)
    assert plain == nn.functional.cross_entropy(output, target)

"""What a step's time consists of, by a clock of the test's."""

from typing import Any

import pytest
import torch
from ddpjob_trainer.recording import step_times
from ddpjob_trainer.recording.step_times import StepTimes
from torch import nn


class Samples:
    """What DistributedDataParallel has told of some steps."""

    def __init__(self) -> None:
        self.times = step_times._Means()

    def look(self) -> None:
        """There is nothing new."""


def test_where_no_step_of_a_window_was_sampled_the_own_part_is_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(step_times.time, "monotonic", lambda: now)
    times, samples = StepTimes(nn.Linear(1, 1), torch.device("cpu")), Samples()
    times._ddp = samples  # type: ignore[assignment]
    samples.times.add("backward", 0.75)
    samples.times.add("communication", 0.25)
    for own in (1.5, 1.5):
        now += 1.0
        times.lap("data")
        assert times.step() is not None
        assert times.busy_seconds == own


def test_each_part_of_a_step_is_a_mean_over_the_steps_of_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(step_times.time, "monotonic", lambda: now)
    times, told = StepTimes(nn.Linear(1, 1), torch.device("cpu")), []
    for data, forward in ((0.25, 0.125), (0.25, 0.125), (0.5, 0.5), (0.75, 0.125), (0.25, 0.125)):
        for part, seconds in (("data", data), ("forward", forward)):
            now += seconds
            times.lap(part)
        told.append(times.step())
    assert told == [None, None, {"data": 1 / 3, "forward": 0.25}, None, {"data": 0.5, "forward": 0.125}]
    assert times.busy_seconds == 0.625


class Timed:
    """DistributedDataParallel, of which only the times matter that it has measured itself, in nanoseconds."""

    rate = 0

    def __init__(self) -> None:
        self.seen: dict[str, int] = {"iteration": 0}

    def _set_ddp_runtime_logging_sample_rate(self, steps: int) -> None:
        self.rate = steps

    def _get_ddp_logging_data(self) -> dict[str, int]:
        return self.seen

    def time(self, iteration: int, *, forward: int, backward: int, sent: int, meanwhile: int) -> None:
        """A step of these seconds; `meanwhile`: as long as gradients were both computed and sent."""
        self.seen = {"iteration": iteration} | {
            name: seconds * 10**9
            for name, seconds in {
                "forward_compute_time": forward,
                "backward_compute_time": backward,
                "backward_comm_time": sent,
                "backward_compute_comm_overlap_time": meanwhile,
            }.items()
        }


def test_what_ddp_has_timed_counts_once_for_all_batches_of_its_step() -> None:
    model: Any = Timed()
    ddp = step_times._Ddp(model, torch.device("cpu"), batches=4)
    assert model.rate == step_times.SAMPLED_STEPS
    ddp.look()
    assert ddp.times.take() == {}, "nothing is timed yet"
    model.time(10, forward=1, backward=2, sent=5, meanwhile=3)
    ddp.look()
    ddp.look()
    model.time(20, forward=3, backward=4, sent=1, meanwhile=3)
    ddp.look()
    assert ddp.times.take() == pytest.approx({"forward": 8.0, "backward": 13.0, "communication": 1.0})
    ddp.look()
    assert ddp.times.take() == {}
    on_gpu: Any = Timed()
    step_times._Ddp(on_gpu, torch.device("cuda"), batches=1)
    assert on_gpu.rate == 0, "there timing makes the CPU wait"


def test_ddp_is_asked_in_every_tenth_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = 100.0, []
    monkeypatch.setattr(step_times.time, "monotonic", lambda: now)
    times, samples = StepTimes(nn.Linear(1, 1), torch.device("cpu")), Samples()
    monkeypatch.setattr(samples, "look", lambda: looks.append(times._steps))
    times._ddp = samples  # type: ignore[assignment]
    for _ in range(35):
        times.step()
    assert looks == [10, 20, 30]


@pytest.mark.parametrize(
    ("device", "parts"), [("cpu", {"data", "forward", "backward", "optimizer"}), ("cuda", {"data"})]
)
def test_on_a_gpu_the_clock_of_the_cpu_measures_only_the_wait_for_data(
    monkeypatch: pytest.MonkeyPatch, device: str, parts: set[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(step_times.time, "monotonic", lambda: now)
    times = StepTimes(nn.Linear(1, 1), torch.device(device))
    now += 60.0  # Before the first lap.
    times.start()
    for _ in range(2):
        for part in ("data", "forward", "backward", "optimizer"):
            now += 0.25
            times.lap(part)
    measured = times.step()
    assert measured == dict.fromkeys(parts, 0.5)
    assert times.busy_seconds == 0.5 * len(parts)

"""What a step's time consists of, by a clock of the test's."""

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

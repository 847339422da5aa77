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

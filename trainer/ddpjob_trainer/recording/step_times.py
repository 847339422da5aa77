"""Measures the parts of a step's time, as means over recent steps: work, and waiting for data and other processes.

DistributedDataParallel itself times one step in a hundred, or more if asked to, on GPUs too. On a GPU, a clock on
the CPU would only measure how long it takes to queue the work. Therefore the times of forward, backward and
communication come from DDP, whose backward time includes the loss. Without DDP, the clock measures them, but only on
a CPU.
"""

import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WINDOW_SECONDS = 1.0
"""The time over which means are taken."""

SAMPLED_STEPS = 10
"""On the CPU, DDP times one step in this many, at no cost. On a GPU, where timing makes the CPU wait, it times one in
100."""

NANOSECONDS = 1e-9


class StepTimes:
    """Measures the parts (laps) of this process's steps; each step has passes for `batches` batches."""

    def __init__(self, model: nn.Module, device: torch.device, batches: int = 1) -> None:
        self._ddp = _Ddp(model, device, batches) if isinstance(model, DistributedDataParallel) else None
        self._clocked = {"data"} if device.type != "cpu" else {"data", "optimizer"}
        if self._ddp is None and device.type == "cpu":
            self._clocked |= {"forward", "backward"}
        self.busy_seconds = 0.0
        """Time of a recent step in which this process did not wait for other processes; 0 if unknown."""
        self._laps = _Means()
        self._step: dict[str, float] = {}
        self._steps = 0
        self._mark = self._window_began = time.monotonic()

    def start(self) -> None:
        """Begins the next lap now. The time since the last lap is part of no step."""
        self._mark = time.monotonic()

    def lap(self, part: str) -> None:
        """Ends a lap: the time since the end of the previous lap is added to this part of the step."""
        now = time.monotonic()
        if part in self._clocked:
            self._step[part] = self._step.get(part, 0.0) + now - self._mark
        self._mark = now

    def step(self) -> dict[str, float] | None:
        """Ends a step. About once a second, returns the mean seconds of each part that is known, by name."""
        self._steps += 1
        for part, seconds in self._step.items():
            self._laps.add(part, seconds)
        self._step.clear()
        if self._ddp is not None and self._steps % SAMPLED_STEPS == 0:
            self._ddp.look()
        if self._mark - self._window_began < WINDOW_SECONDS:
            return None
        self._window_began = self._mark
        parts = self._laps.take() | (self._ddp.times.take() if self._ddp is not None else {})
        # With long steps, a window may have no step that DDP has timed. The sum counts communication twice, because
        # backward time includes it.
        if self._ddp is None or "backward" in parts:
            self.busy_seconds = sum(parts.values()) - 2 * parts.get("communication", 0.0)
        return parts


class _Ddp:
    """Reads the times that DDP measures for the last batch of a step, and applies them to all of its batches."""

    def __init__(self, model: DistributedDataParallel, device: torch.device, batches: int) -> None:
        self.times = _Means()
        # The methods of DistributedDataParallel that are called here are documented, despite their underscores.
        self._model = model
        self._batches = batches
        self._seen = 0
        if device.type == "cpu":
            self._model._set_ddp_runtime_logging_sample_rate(SAMPLED_STEPS)  # type: ignore[no-untyped-call]  # noqa: SLF001

    def look(self) -> None:
        """Adds the times of the step that DDP timed last, if they have not been added yet."""
        timed = self._model._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001
        if timed["iteration"] == self._seen or "backward_comm_time" not in timed:
            return
        self._seen = timed["iteration"]
        waited = max(0, timed["backward_comm_time"] - timed["backward_compute_comm_overlap_time"])
        self.times.add("forward", timed["forward_compute_time"] * self._batches * NANOSECONDS)
        self.times.add("backward", (timed["backward_compute_time"] * self._batches + waited) * NANOSECONDS)
        self.times.add("communication", waited * NANOSECONDS)


class _Means:
    """Means of times by name, over the times that were added since the last `take`."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float]] = {}

    def add(self, name: str, seconds: float) -> None:
        count, total = self._sums.get(name, (0, 0.0))
        self._sums[name] = count + 1, total + seconds

    def take(self) -> dict[str, float]:
        """Returns the means, and resets them."""
        sums, self._sums = self._sums, {}
        return {name: total / count for name, (count, total) in sums.items()}

"""What a step's time consists of, as recent means: where a process works, and where it waits for data or for others.

DistributedDataParallel times one step in a hundred by itself, or more if asked to. On a GPU too, where a clock on the
CPU would only see how long it takes to ask for work. So forward, backward and communication are its numbers; its
backward includes the loss. A process without it is timed by the clock, on the CPU only.
"""

import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WINDOW_SECONDS = 1.0
"""What "recent" means."""

SAMPLED_STEPS = 10
"""On the CPU one in this many is timed: that costs nothing. On a GPU the CPU waits for it, so it stays at 100."""

NANOSECONDS = 1e-9


class StepTimes:
    """Follows the steps of this process, lap by lap; each goes forward and backward on this many batches."""

    def __init__(self, model: nn.Module, device: torch.device, batches: int = 1) -> None:
        self._ddp = _Ddp(model, device, batches) if isinstance(model, DistributedDataParallel) else None
        self._clocked = {"data"} if device.type != "cpu" else {"data", "optimizer"}
        if self._ddp is None and device.type == "cpu":
            self._clocked |= {"forward", "backward"}
        self.busy_seconds = 0.0
        """The part of a recent step in which this process works, and waits for nobody; 0: not known yet."""
        self._laps = _Means()
        self._step: dict[str, float] = {}
        self._steps = 0
        self._mark = self._window_began = time.monotonic()

    def start(self) -> None:
        """The next lap begins now: what came before is not part of a step."""
        self._mark = time.monotonic()

    def lap(self, part: str) -> None:
        """Since the last lap this part of the step was done."""
        now = time.monotonic()
        if part in self._clocked:
            self._step[part] = self._step.get(part, 0.0) + now - self._mark
        self._mark = now

    def step(self) -> dict[str, float] | None:
        """A step is finished. About once a second: the mean seconds of each part that is known, by name."""
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
        # Of long steps a window may have none of which everything is known. Backward contains communication.
        if self._ddp is None or "backward" in parts:
            self.busy_seconds = sum(parts.values()) - 2 * parts.get("communication", 0.0)
        return parts


class _Ddp:
    """DistributedDataParallel's times of some steps: of a step's last batch, which stands for all."""

    def __init__(self, model: DistributedDataParallel, device: torch.device, batches: int) -> None:
        self.times = _Means()
        self._model = model  # What is called here is documented, in spite of its names.
        self._batches = batches
        self._seen = 0
        if device.type == "cpu":
            self._model._set_ddp_runtime_logging_sample_rate(SAMPLED_STEPS)  # type: ignore[no-untyped-call]  # noqa: SLF001

    def look(self) -> None:
        """Takes the newest sample, if it has not been taken yet."""
        told = self._model._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001
        if told["iteration"] == self._seen or "backward_comm_time" not in told:
            return
        self._seen = told["iteration"]
        waited = max(0, told["backward_comm_time"] - told["backward_compute_comm_overlap_time"])
        self.times.add("forward", told["forward_compute_time"] * self._batches * NANOSECONDS)
        self.times.add("backward", (told["backward_compute_time"] * self._batches + waited) * NANOSECONDS)
        self.times.add("communication", waited * NANOSECONDS)


class _Means:
    """Means of times by name, of those that came since they were last taken."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float]] = {}

    def add(self, name: str, seconds: float) -> None:
        count, total = self._sums.get(name, (0, 0.0))
        self._sums[name] = count + 1, total + seconds

    def take(self) -> dict[str, float]:
        """Returns the means and starts again."""
        sums, self._sums = self._sums, {}
        return {name: total / count for name, (count, total) in sums.items()}

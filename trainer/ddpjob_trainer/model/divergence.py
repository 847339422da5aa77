"""Handles training that has diverged: steps whose loss or gradients are not finite.

The device computes whether a step was finite. The CPU reads the result only when the next step is under way, so that
no process waits for it. A process whose own loss was not finite fails first. Its gradients make the gradients of all
ranks infinite or NaN, but the other ranks check gradients only after one more exchange, in which the failed rank is
missing. Therefore the rank at which the problem began is reported as the cause.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import torch
from ddpjob_rank.console import counted, listed, warn
from ddpjob_rank.errors import DivergedError
from ddpjob_rank.world import World
from torch import Tensor, nn
from torch.optim import Optimizer

from ddpjob_trainer.options import OnDivergence

NAMED_SAMPLES = 32

MOST_IN_A_ROW = 100
"""The run ends after this many skipped steps in a row, because so many cannot be accidents."""


class StepOutcome(NamedTuple):
    """The result of a step, still on the device."""

    loss: Tensor | None
    """This process's mean loss; None if this process had no samples."""
    finite: Tensor | None = None
    """Whether all gradients were finite, which is the same on all ranks; None if this was not checked."""


class Gradients:
    """Checks the gradients that a model's optimizer uses, at low cost. They are the same on all ranks."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._model = model
        self._optimizer = optimizer
        self._count = -1
        self._kinds: dict[tuple[torch.device, torch.dtype], tuple[Tensor, list[nn.Parameter]]] = {}

    def are_finite(self) -> Tensor:
        """Whether all gradients are finite, as a tensor on the device.

        As in GradScaler, one kernel checks all gradients of the same device and type.
        """
        if sum(len(group["params"]) for group in self._optimizer.param_groups) != self._count:
            self._look()
        found: Tensor | None = None
        for scale, parameters in self._kinds.values():
            here = torch.zeros_like(scale)
            grads = [_numbers(parameter.grad) for parameter in parameters if parameter.grad is not None]
            if grads:
                torch._amp_foreach_non_finite_check_and_unscale_(grads, here, scale)
            found = here if found is None else found + here.to(found.device)
        return torch.tensor(data=True) if found is None else found == 0

    def _look(self) -> None:
        used = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        ids, self._count = {id(parameter) for parameter in used}, len(used)
        self._kinds = {}
        for parameter in self._model.parameters():
            if id(parameter) in ids:
                scale = torch.ones((), device=parameter.device)
                self._kinds.setdefault((parameter.device, parameter.dtype), (scale, []))[1].append(parameter)


def _numbers(grad: Tensor) -> Tensor:
    return grad._values() if grad.is_sparse else grad  # noqa: SLF001


class Watch:
    """Checks the steps of this process. If a step is not finite, ends the run, or warns that it was left out."""

    def __init__(self, choice: OnDivergence, world: World, *, scaled: bool) -> None:
        """`scaled` means that fp16's scaler skips steps with infinite gradients, which are normal occasionally."""
        self._choice = choice
        self._world = world
        self._scaled = scaled
        self._steps: deque[_Step] = deque()
        self._in_a_row = 0

    def add(self, number: int, samples: Tensor | None, outcome: StepOutcome) -> None:
        """Adds a step that was made, without waiting for the device.

        `samples` are the indices of the step's samples in the data set; None if the samples have no indices.
        """
        if self._choice != "ignore":
            loss = None if outcome.loss is None else _Flag(_is_finite(outcome.loss))
            gradients = None if outcome.finite is None else _Flag(outcome.finite)
            self._steps.append(_Step(number, samples, loss, gradients))

    def look_back(self, step: int) -> None:
        """Is called after `step`. Checks this process's losses up to `step - 1`, and the gradients up to `step - 2`.

        Raises:
            DivergedError: A loss or a gradient was not finite.
        """
        self.look(own=step - 1, everybodys=step - 2)

    def look(self, *, own: int, everybodys: int = -1) -> None:
        """Checks this process's own losses up to step `own`, and the shared gradients up to step `everybodys`.

        Before this call, all processes must have checked their own losses up to step `everybodys`, and must have
        taken part in an exchange after that step.

        Raises:
            DivergedError: A loss or a gradient was not finite.
        """
        if self._choice == "skip":
            everybodys = own  # All ranks skip the same steps and go on, so no rank needs to fail first.
        for step in tuple(self._steps):
            if step.number <= own:
                self._check_own(step)
            if step.number <= everybodys:
                self._check_everybodys(step)
                self._steps.popleft()

    def _check_own(self, step: "_Step") -> None:
        left_out = self._choice == "skip" and not step.gradients_are_finite
        if step.loss_is_finite or left_out:
            return
        raise DivergedError(
            f"training has diverged: the loss of step {step.number} is not a finite number on rank {self._world.rank}"
            f"{step.of_samples}"
        )

    def _check_everybodys(self, step: "_Step") -> None:
        if step.gradients_are_finite:
            self._in_a_row = 0
        elif self._choice == "skip":
            self._left_out(step)
        elif not self._scaled:
            here = step.of_samples and f"; rank {self._world.rank} computed its loss{step.of_samples}"
            raise DivergedError(
                f"training has diverged: the gradients of step {step.number} are not finite numbers, though the loss"
                f" of each rank was finite{here}"
            )

    def _left_out(self, step: "_Step") -> None:
        self._in_a_row += 1
        if self._world.leads or not step.loss_is_finite:
            whose = "" if step.loss_is_finite else f"; nor is the loss of rank {self._world.rank}{step.of_samples}"
            warn(f"step {step.number} is left out: its gradients are not finite numbers{whose}")
        if self._in_a_row >= MOST_IN_A_ROW:
            raise DivergedError(
                f"training has diverged: the last {MOST_IN_A_ROW} steps up to step {step.number} had to be left out"
            )


def _is_finite(loss: Tensor) -> Tensor:
    flag = loss.isfinite()
    return flag.all() if flag.dim() else flag


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that was made, but has not been checked completely yet."""

    number: int
    samples: Tensor | None
    loss: "_Flag | None"
    gradients: "_Flag | None"

    @property
    def loss_is_finite(self) -> bool:
        return self.loss is None or self.loss.read()

    @property
    def gradients_are_finite(self) -> bool:
        return self.gradients is None or self.gradients.read()

    @property
    def of_samples(self) -> str:
        """The end of a message, which lists the indices of the step's samples in ascending order."""
        if self.samples is None:
            return ""
        numbers = [str(number) for number in sorted(self.samples.tolist())]
        return f", of {counted(len(numbers), 'sample')}: {listed(numbers, NAMED_SAMPLES)}"


class _Flag:
    """A boolean that the device computes, and that is then copied to the CPU."""

    def __init__(self, flag: Tensor) -> None:
        self._value = flag.to("cpu", non_blocking=True)
        self._arrives = None
        if flag.device.type != "cpu":
            stream = torch.get_device_module(flag.device).current_stream(flag.device)
            self._arrives = stream.record_event()

    def read(self) -> bool:
        """The value. Waits until the device has computed it, but not for work that was queued afterwards."""
        if self._arrives is not None:
            self._arrives.synchronize()
            self._arrives = None
        return bool(self._value)

"""Counts the steps of a program that does not report them: by the first of its optimizers that makes one.

The supervisor's ranks have this installed before their program runs. PyTorch may be there by then, or it comes with
the program's own imports; a program that does without must not wait for it.
"""

import os
import weakref
from types import ModuleType
from typing import Any

from .environment import Env
from .importing import once_imported
from .reporting import count_step, is_at_hand

OPTIMIZERS = "torch.optim.optimizer"


def install() -> None:
    """Counts from now on, if this process has a supervisor that wants to know."""
    if Env.HEARTBEAT in os.environ:
        once_imported(OPTIMIZERS, _register)


def _register(optimizers: ModuleType) -> None:
    optimizers.register_optimizer_step_post_hook(_Counter())


class _Counter:
    """Of several optimizers, only one counts: a step may need them all."""

    def __init__(self) -> None:
        self._first: weakref.ref[object] | None = None

    def __call__(self, optimizer: object, _args: object, _kwargs: object) -> None:
        first = self._first() if self._first else None
        if first is None:
            self._first = weakref.ref(optimizer)
            count_step(_made_before(optimizer))
        elif first is optimizer:
            count_step()


def _made_before(optimizer: Any) -> int | None:
    """The steps before its present one: Adam and its like keep their number, and a checkpoint brings it back.

    None of others, such as SGD, which do not; nor is one that is on a GPU worth to be waited for.
    """
    try:
        steps = next(state["step"] for state in optimizer.state.values() if "step" in state)
        return max(0, int(steps) - 1) if is_at_hand(steps) else None
    except Exception:  # noqa: BLE001  What an optimizer keeps is its own, and it is in the midst of the user's step.
        return None

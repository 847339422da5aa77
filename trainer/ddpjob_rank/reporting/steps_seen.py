"""Counts the steps of a program that does not report them: by the first of its optimizers that makes one.

The supervisor's ranks have this installed before their program runs. PyTorch may be imported by then, or it comes
with the program's own imports; a program without it must not wait for it.
"""

import os
import sys
import weakref
from types import ModuleType
from typing import Any

from ddpjob_rank.console import counted, warn
from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from .report import count_step, counted_steps, is_at_hand

OPTIMIZERS = "torch.optim.optimizer"
DISTRIBUTED = "torch.distributed"


def install() -> None:
    """Counts from now on, if this process has a supervisor that wants to know."""
    if Env.HEARTBEAT in os.environ:
        once_imported(OPTIMIZERS, _register)


def _register(optimizers: ModuleType) -> None:
    optimizers.register_optimizer_step_post_hook(_Counter())


class _Counter:
    """Only one of several optimizers counts: a step may need them all."""

    def __init__(self) -> None:
        self._first: weakref.ref[object] | None = None

    def __call__(self, optimizer: object, _args: object, _kwargs: object) -> None:
        first = self._first() if self._first else None
        if first is None:
            self._first = weakref.ref(optimizer)
            count_step(_made_before(optimizer))
            _look_for_others()
        elif first is optimizer:
            count_step()


def _look_for_others() -> None:
    """Warns if this process trains without the others of its job: then each trains, and all seems to be well."""
    processes = os.environ.get(Env.WORLD_SIZE, "")
    distributed = sys.modules.get(DISTRIBUTED)
    together = distributed.get_world_size() if distributed and _has_group(distributed) else 1
    if not processes.isdecimal() or together >= int(processes) or counted_steps() is None:
        return
    if os.environ.get(Env.RANK) == "0":
        warn(
            f"trains in a process group of {counted(together, 'process')}, while the job has {processes}: they train"
            f" apart. Have init_process_group take rank, size and {Env.MASTER_ADDR} from the environment, or run the"
            " job on one node"
        )


def _has_group(distributed: ModuleType) -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def _made_before(optimizer: Any) -> int | None:
    """The steps before its present one: Adam and similar ones keep their number, and a checkpoint brings it back.

    None for others, such as SGD, which do not; and one on a GPU is not worth waiting for.
    """
    try:
        steps = next(state["step"] for state in optimizer.state.values() if "step" in state)
        return max(0, int(steps) - 1) if is_at_hand(steps) else None
    except Exception:  # noqa: BLE001  What an optimizer keeps is its own, and it is in the midst of the user's step.
        return None

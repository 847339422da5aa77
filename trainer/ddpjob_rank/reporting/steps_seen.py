"""Counts the steps of a program that does not report them: by the first of its optimizers that makes one.

The supervisor's ranks have this installed before their program runs. PyTorch may be imported by then, or it comes
with the program's own imports; a program without it must not wait for it.
"""

import functools
import os
import sys
import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ddpjob_rank.console import counted, warn
from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from .report import count_step, counted_steps, is_at_hand

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIMIZERS = "torch.optim.optimizer"
MODULES = "torch.nn.modules.module"
DISTRIBUTED = "torch.distributed"


def install() -> None:
    """Counts from now on, if this process has a supervisor that wants to know."""
    if Env.HEARTBEAT in os.environ:
        once_imported(OPTIMIZERS, _register)
        once_imported(MODULES, _watch_loading)


def _register(optimizers: ModuleType) -> None:
    counter = _Counter()
    counter.forget_start = optimizers.register_optimizer_step_pre_hook(counter.note_start).remove
    optimizers.register_optimizer_step_post_hook(counter)


_has_loaded = False
"""Whether a model of this process has been given weights: they may be of any step, whatever its optimizer knows."""


def _watch_loading(modules: ModuleType) -> None:
    load = modules.Module.load_state_dict

    @functools.wraps(load)
    def watched(*arguments: Any, **options: Any) -> Any:
        global _has_loaded  # noqa: PLW0603  (of this process)
        _has_loaded = True
        return load(*arguments, **options)

    modules.Module.load_state_dict = watched


class _Counter:
    """Only one of several optimizers counts: a step may need them all."""

    def __init__(self) -> None:
        self._first: weakref.ref[object] | None = None
        self._is_new = False
        self.forget_start: Callable[[], None] = lambda: None
        """Has `note_start` called no more."""

    def note_start(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        """The first step of all is about to be made; whether its optimizer keeps anything from an earlier one."""
        if self._first is None:
            self._is_new = not getattr(optimizer, "state", True)

    def __call__(self, optimizer: object, _args: object, _kwargs: object) -> None:
        first = self._first() if self._first else None
        if first is None:
            self._first = weakref.ref(optimizer)
            self.forget_start()  # Not while it is called: PyTorch goes through these hooks.
            count_step(_made_before(optimizer, is_new=self._is_new))
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
            f"trains in a process group of {counted(together, 'process')}, but the job has {processes}: "
            f"they do not train together. Have init_process_group take rank, size and {Env.MASTER_ADDR} "
            "from the environment, or run the"
            " job on one node"
        )


def _has_group(distributed: ModuleType) -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def _made_before(optimizer: Any, *, is_new: bool) -> int | None:
    """The steps before its present one: Adam and similar ones keep their number, and a checkpoint brings it back.

    None for others, such as SGD, which do not, and for a new one whose model goes on from somewhere. A number on a
    GPU is not worth waiting for: it is only known of an optimizer that `is_new`.
    """
    try:
        steps = next(state["step"] for state in optimizer.state.values() if "step" in state)
        if not is_at_hand(steps) and not is_new:
            return None
        return (max(0, int(steps) - 1) if is_at_hand(steps) else 0) or (None if _has_loaded else 0)
    except Exception:  # noqa: BLE001  What an optimizer keeps is its own, and it is in the midst of the user's step.
        return None

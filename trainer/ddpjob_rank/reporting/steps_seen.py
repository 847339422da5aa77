"""Counts the steps of a program that does not report them, by the steps of the first optimizer that makes a step.

A rank installs this before its program runs. PyTorch may already be imported then, or the program imports it later.
Programs without PyTorch must not have to wait for its import.
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
    """Counts steps from now on, if this process has a supervisor."""
    if Env.HEARTBEAT in os.environ:
        once_imported(OPTIMIZERS, _register)
        once_imported(MODULES, _watch_loading)


def _register(optimizers: ModuleType) -> None:
    COUNTER.forget_start = optimizers.register_optimizer_step_pre_hook(COUNTER.note_start).remove
    optimizers.register_optimizer_step_post_hook(COUNTER)


_has_loaded = False
"""Whether a model in this process has loaded weights, which may be from any step even if the optimizer is new."""


def _watch_loading(modules: ModuleType) -> None:
    load = modules.Module.load_state_dict

    @functools.wraps(load)
    def watched(*arguments: Any, **options: Any) -> Any:
        global _has_loaded  # noqa: PLW0603  (a process has one value of it)
        _has_loaded = True
        return load(*arguments, **options)

    modules.Module.load_state_dict = watched


class _Counter:
    """Counts the steps of one optimizer only, because a program may use several optimizers in each step."""

    def __init__(self) -> None:
        self._first: weakref.ref[object] | None = None
        self._is_new = False
        self.forget_start: Callable[[], None] = lambda: None
        """Removes the hook that calls `note_start`."""

    def note_start(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        """Records, before the first step of any optimizer, whether the optimizer has state from an earlier step."""
        if self._first is None:
            self._is_new = not getattr(optimizer, "state", True)

    def __call__(self, optimizer: object, _args: object, _kwargs: object) -> None:
        first = self._first() if self._first else None
        if first is None:
            self._first = weakref.ref(optimizer)
            # This is not done in note_start itself, because PyTorch iterates over the hooks at that moment.
            self.forget_start()
            count_step(_made_before(optimizer, is_new=self._is_new))
            _look_for_others()
        elif first is optimizer:
            count_step()

    def trains(self, model: Any) -> bool:
        """Whether `model` has the first and the last parameter of the optimizer whose steps are counted."""
        try:
            groups = getattr(self._first and self._first(), "param_groups", None)
            if not groups:
                return False
            ends = {id(groups[0]["params"][0]), id(groups[-1]["params"][-1])}
            return ends <= {id(parameter) for parameter in model.parameters()}
        except Exception:  # noqa: BLE001  (both may hold anything, and the user's program must not fail)
            return False


COUNTER = _Counter()


def _look_for_others() -> None:
    """Warns if this process trains without the other processes of its job, because nothing else would show that."""
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
    """The number of steps that an optimizer made before its present step; None if unknown.

    Adam and similar optimizers keep the number, and restore it from a checkpoint. It is unknown for optimizers that
    do not keep it, such as SGD, and for a new optimizer if weights were loaded. If the number is kept on a GPU, it is
    not read, because reading it would mean waiting for the GPU. In this case it is known only for an optimizer that
    `is_new`.
    """
    try:
        steps = next(state["step"] for state in optimizer.state.values() if "step" in state)
        if not is_at_hand(steps) and not is_new:
            return None
        return (max(0, int(steps) - 1) if is_at_hand(steps) else 0) or (None if _has_loaded else 0)
    except Exception:  # noqa: BLE001  (an optimizer's state may hold anything, and the user's step must not fail)
        return None

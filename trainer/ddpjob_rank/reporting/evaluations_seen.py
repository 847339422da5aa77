"""Detects the evaluations of a program that does not report them: from the model's `eval()` to its next step.

Each batch that the program fetches from a DataLoader in this time, and each move of a progress bar, shows that the
evaluation goes on. Only the model whose optimizer is counted is followed: a teacher or a frozen layer may be in
evaluation mode while the program trains.
"""

import functools
import os
import sys
import weakref
from types import ModuleType
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from .report import hear_evaluation, hear_training, last_step
from .steps_seen import COUNTER

MODULES = "torch.nn.modules.module"
LOADERS = "torch.utils.data.dataloader"
ITERATOR = "_BaseDataLoaderIter"


def install() -> None:
    """Detects evaluations from now on, if this process has a supervisor."""
    if Env.HEARTBEAT in os.environ:
        once_imported(MODULES, _watch)


def _watch(modules: ModuleType) -> None:
    evaluate = modules.Module.eval

    @functools.wraps(evaluate)
    def watched(model: Any) -> Any:
        if COUNTER.trains(model):
            HEARD.begin(model)
        return evaluate(model)

    modules.Module.eval = watched


class HeardEvaluation:
    """An evaluation that was detected. PyTorch's loaders are changed only while it lasts."""

    def __init__(self) -> None:
        self._model: weakref.ref[Any] | None = None
        self._step: float | None = None
        """The step after which the model was put into evaluation mode."""
        self._watches = False

    def begin(self, model: Any) -> None:
        """Watches loaders until the evaluation is over."""
        self._model, self._step = weakref.ref(model), last_step()
        iterator = getattr(sys.modules.get(LOADERS), ITERATOR, None)
        if self._watches or iterator is None:
            return
        fetch = iterator.__next__

        @functools.wraps(fetch)
        def watched(batches: Any) -> Any:
            if not self.goes_on():
                iterator.__next__, self._watches = fetch, False
            return fetch(batches)

        iterator.__next__, self._watches = watched, True

    def goes_on(self) -> bool:
        """Whether an evaluation is going on. If so, reports that."""
        model = self._model() if self._model else None
        if model is None or last_step() != self._step:
            return False
        if model.training:
            hear_training()
            return False
        hear_evaluation()
        return True


HEARD = HeardEvaluation()

"""Reports the progress of Hugging Face's Trainer with a callback, which the program does not have to add.

The callback is added to the Trainer's default callbacks. transformers has this list at least from 4.41 to 5.24. If a
release lacks the list, steps are counted as for any other program.
"""

import importlib
import math
import os
from contextlib import suppress
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from .report import FIELDS, report
from .teller import EVALUATION, TRAINING

TRAINER = "transformers.trainer"
LIBRARY = "ddpjob.integrations.transformers"
"""The module that lets the Trainer resume and stop. It needs torch, which transformers.trainer has imported by
then."""

ROUNDING = 1e-6
"""The tolerance for `state.epoch`, in epochs, because the Trainer computes it as a sum of fractions."""


def install() -> None:
    """Adds the callback as soon as transformers is imported, if this process has a supervisor."""
    if Env.HEARTBEAT in os.environ:
        once_imported(TRAINER, _add_callback)


def _add_callback(trainer: Any) -> None:
    with suppress(AttributeError):
        trainer.DEFAULT_CALLBACKS.append(_callback(trainer.TrainerCallback))
        importlib.import_module(LIBRARY).install(trainer)


def _callback(base: type[Any]) -> type[Any]:
    class DDPJobCallback(base):  # type: ignore[misc]  # The base class is unknown until transformers is imported.
        """Reports the step, the epoch, the number of steps, logged numbers, and evaluations."""

        def on_train_begin(self, _args: object, state: Any, _control: object, **_: object) -> None:
            """Reports the number of the last step, which is known from here on."""
            report(total=state.max_steps if state.max_steps > 0 else None)

        def on_step_end(self, _args: object, state: Any, _control: object, **_: object) -> None:
            """Reports the step and the number of the present epoch, which is 2 after 1.2 epochs."""
            epoch = None if state.epoch is None else max(1, math.ceil(state.epoch - ROUNDING))
            report(step=state.global_step, epoch=epoch)

        def on_log(self, _args: object, _state: object, _control: object, logs: Any = None, **_: object) -> None:
            """Reports the logged numbers."""
            numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
            own: dict[str, Any] = {name: value for name, value in numbers.items() if name not in FIELDS}
            report(loss=numbers.get("loss"), **own)

        def on_prediction_step(self, *_: object, **__: object) -> None:
            """Reports that an evaluation goes on, because it may take longer than a step."""
            report(activity=EVALUATION)

        def on_evaluate(self, *_: object, **__: object) -> None:
            """Reports that training continues."""
            report(activity=TRAINING)

        on_predict = on_evaluate

    return DDPJobCallback

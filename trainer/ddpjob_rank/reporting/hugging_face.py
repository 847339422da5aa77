"""Reports where Hugging Face's Trainer is: each Trainer of this process gets a callback, by no line of the program's.

It is added to the Trainer's default callbacks, a list that transformers has had from 4.41 to 5.24 at least. A release
without it is trained with as any program is: its steps are counted.
"""

import math
import os
from contextlib import suppress
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from .report import FIELDS, report
from .teller import EVALUATION, TRAINING

TRAINER = "transformers.trainer"

ROUNDING = 1e-6
"""Of an epoch, which is a share of steps added up."""


def install() -> None:
    """Adds the callback once transformers is imported, if this process has a supervisor that wants to know."""
    if Env.HEARTBEAT in os.environ:
        once_imported(TRAINER, _add_callback)


def _add_callback(trainer: Any) -> None:
    with suppress(AttributeError):
        trainer.DEFAULT_CALLBACKS.append(_callback(trainer.TrainerCallback))


def _callback(base: type[Any]) -> type[Any]:
    class DDPJobCallback(base):  # type: ignore[misc]  # It is known only once it is imported.
        """Reports steps, their number, the epoch, what is logged, and that an evaluation runs."""

        def on_train_begin(self, _args: object, state: Any, _control: object, **_: object) -> None:
            """From here on the number of the last step is known."""
            report(total=state.max_steps if state.max_steps > 0 else None)

        def on_step_end(self, _args: object, state: Any, _control: object, **_: object) -> None:
            """Of 1.2 epochs that are done, the present one is the second."""
            epoch = None if state.epoch is None else max(1, math.ceil(state.epoch - ROUNDING))
            report(step=state.global_step, epoch=epoch)

        def on_log(self, _args: object, _state: object, _control: object, logs: Any = None, **_: object) -> None:
            """Numbers, by their names."""
            numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
            own: dict[str, Any] = {name: value for name, value in numbers.items() if name not in FIELDS}
            report(loss=numbers.get("loss"), **own)

        def on_prediction_step(self, *_: object, **__: object) -> None:
            """An evaluation may take longer than a step."""
            report(activity=EVALUATION)

        def on_evaluate(self, *_: object, **__: object) -> None:
            """Training goes on."""
            report(activity=TRAINING)

    return DDPJobCallback

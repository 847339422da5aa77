"""Reports the progress of Lightning's Trainer, which finds `callbacks` by this distribution's entry point.

The module `lightning_resuming` lets it resume and stop.
"""

import math
import os
from contextlib import suppress
from typing import Any

from ddpjob_rank.environment import Env
from lightning.pytorch.callbacks import Callback

from ddpjob import report

OFTEN = 50
"""Steps between two reports of a loss on a GPU if the Trainer does not log. Lightning logs as often by default."""


class DDPJobCallback(Callback):  # type: ignore[misc]  # mypy ignores the types of Lightning.
    """Reports each finished step, the total number of steps, the epoch, the loss, and when an evaluation runs."""

    def on_train_start(self, trainer: Any, _module: Any) -> None:
        """Reports the total number of steps, unless training has no end. The number is not known earlier."""
        with suppress(Exception):  # Lightning cannot always estimate the total, but that must not end training.
            total = trainer.estimated_stepping_batches
            report(total=int(total) if 0 < total < math.inf else None)

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, _batch: Any, _index: int) -> None:
        """Reports the step. Reads a loss on a GPU only when Lightning logs, because reading waits for the GPU."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        report(step=trainer.global_step or None, epoch=trainer.current_epoch + 1)
        if loss is not None and (loss.is_cpu or trainer.global_step % (trainer.log_every_n_steps or OFTEN) == 0):
            report(loss=loss.item())

    def on_validation_start(self, *_: Any) -> None:
        """Reports that an evaluation begins or goes on, because it may take longer than a step."""
        report(activity="evaluation")

    def on_validation_end(self, *_: Any) -> None:
        """Reports that training goes on."""
        report(activity="training")

    on_test_start = on_predict_start = on_validation_start
    on_validation_batch_end = on_test_batch_end = on_predict_batch_end = on_validation_start
    on_test_end = on_predict_end = on_validation_end


def callbacks() -> list[Callback]:
    """The callbacks that Lightning adds to each Trainer inside a job; none elsewhere."""
    if Env.HEARTBEAT not in os.environ:
        return []
    from .lightning_resuming import ResumeCallback  # noqa: PLC0415  (imports torch's distributed checkpoints)

    return [DDPJobCallback(), ResumeCallback()]

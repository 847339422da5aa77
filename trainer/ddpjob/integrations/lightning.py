"""Reports where Lightning's Trainer is, which finds this by itself in a job: as an entry point of this package."""

import math
import os
from contextlib import suppress
from typing import Any

from ddpjob_rank.environment import Env
from lightning.pytorch.callbacks import Callback

from ddpjob import report

OFTEN = 50
"""Lightning's default interval, for a Trainer that does not log at all."""


class DDPJobCallback(Callback):  # type: ignore[misc]  # Types of Lightning are not looked at.
    """Reports steps, their number, the epoch and the loss, and that an evaluation runs."""

    def on_train_start(self, trainer: Any, _module: Any) -> None:
        """From here on the total number of steps is known, unless training has no end."""
        with suppress(Exception):  # Not every training can be estimated, and none should end because of that.
            total = trainer.estimated_stepping_batches
            report(total=int(total) if 0 < total < math.inf else None)

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, _batch: Any, _index: int) -> None:
        """A loss on a GPU is read where Lightning's loggers read theirs."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        report(step=trainer.global_step or None, epoch=trainer.current_epoch + 1)
        if loss is not None and (loss.is_cpu or trainer.global_step % (trainer.log_every_n_steps or OFTEN) == 0):
            report(loss=loss.item())

    def on_validation_start(self, _trainer: Any, _module: Any) -> None:
        """It may take longer than a step."""
        report(activity="evaluation")

    def on_validation_end(self, _trainer: Any, _module: Any) -> None:
        """Training goes on."""
        report(activity="training")


def callbacks() -> list[DDPJobCallback]:
    """What Lightning adds to each Trainer: one in a job, and none elsewhere."""
    return [DDPJobCallback()] if Env.HEARTBEAT in os.environ else []

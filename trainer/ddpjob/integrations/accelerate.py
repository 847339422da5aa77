"""Reports the progress of training with Accelerate: `Accelerator(log_with=DDPJobTracker(total=1000))`.

A script with Accelerate resumes with `ddpjob.Training(accelerator=…)`.
"""

from typing import Any

from accelerate.tracking import GeneralTracker
from ddpjob_rank.reporting.report import FIELDS

from ddpjob import report


class DDPJobTracker(GeneralTracker):  # type: ignore[misc]  # mypy ignores the types of Accelerate.
    """Reports the values passed to `Accelerator.log`.

        from accelerate import Accelerator
        from ddpjob.integrations.accelerate import DDPJobTracker

        accelerator = Accelerator(log_with=DDPJobTracker(total=1000))
        accelerator.init_trackers("training")
        for step, (x, y) in enumerate(loader, start=1):
            accelerator.log({"loss": train_one_step(x, y)}, step=step)
        accelerator.end_training()

    The values are the finished step, the loss, and other numbers by name.
    """

    name = "ddpjob"
    requires_logging_directory = False
    main_process_only = False
    tracker = None
    """In other trackers this is the run object of their library. This tracker needs none."""

    def __init__(self, total: int | None = None) -> None:
        """`total` is the number of the last step."""
        super().__init__()
        self._total = total

    def start(self) -> None:
        """Reports the number of the last step; `Accelerator.init_trackers` calls this."""
        report(total=self._total)

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """Reports the numbers among `values`, and the finished `step`; `Accelerator.log` calls this."""
        numbers: dict[str, Any] = {name: value for name, value in values.items() if isinstance(value, int | float)}
        loss = numbers.pop("loss", numbers.pop("train_loss", None))
        own = {name: value for name, value in numbers.items() if name not in FIELDS}
        report(step=step, loss=loss, **own)

"""Reports where training with Accelerate is: `Accelerator(log_with=DDPJobTracker(total=1000))`."""

from typing import Any

from accelerate.tracking import GeneralTracker
from ddpjob_rank.reporting.report import FIELDS

from ddpjob import report


class DDPJobTracker(GeneralTracker):  # type: ignore[misc]  # Types of Accelerate are not looked at.
    """Reports what `Accelerator.log` is given: the finished step, a loss, and other numbers by their names."""

    name = "ddpjob"
    requires_logging_directory = False
    main_process_only = False
    tracker = None
    """For other trackers the run behind them; there is none here."""

    def __init__(self, total: int | None = None) -> None:
        """`total`: the number of the last step."""
        super().__init__()
        self._total = total

    def start(self) -> None:
        """`Accelerator.init_trackers` was called."""
        report(total=self._total)

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """`Accelerator.log` was called."""
        numbers: dict[str, Any] = {name: value for name, value in values.items() if isinstance(value, int | float)}
        loss = numbers.pop("loss", numbers.pop("train_loss", None))
        own = {name: value for name, value in numbers.items() if name not in FIELDS}
        report(step=step, loss=loss, **own)

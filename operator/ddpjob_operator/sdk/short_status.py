"""Shows a job's status in a notebook: in a few lines, and not with all its fields."""

from typing import Any

from ddpjob_operator.api import DDPJobStatus
from ddpjob_operator.api.words import counted
from ddpjob_operator.text import visible
from ddpjob_operator.view_model import how_far


def in_a_few_lines(status: DDPJobStatus, printer: Any, cycle: bool) -> None:  # noqa: ARG001, FBT001  IPython's form.
    """Prints a status as the value of a cell; only IPython calls this. `print(status)` shows all fields."""
    again = f"attempt {status.attempt}, {counted(status.restarts, 'restart')}" if status.attempt > 1 else ""
    lines = (f"{status.state}: {status.message}", ", ".join(how_far(status)), again)
    printer.text("\n".join(visible(line) for line in lines if line))

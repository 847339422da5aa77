"""The functions with which a program reports its progress: `report`, `activity` and others.

A report goes into the rank's heartbeat file, which the supervisor reads when it needs to, so neither waits for the
other. Without a supervisor these functions do nothing. They never stop a program: a value that cannot be reported is
left out, with one warning on stderr. They never wait for a GPU: a loss that is still on the GPU is left out.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import SupportsFloat

from ddpjob_rank.environment import Env

from .heartbeat import AS_ASKED, COUNTED, COUNTED_ANEW, FROM_CHECKPOINT, LARGEST, NOTHING_SAVED
from .teller import ENDING, EVALUATION, TRAINING, Teller, warn_once

FIELDS = frozenset({"step", "epoch", "total", "loss", "samples", "activity", "checkpoint", "resumed"})
"""The names of report's own parameters, which a metric must not have."""

TAKE_OVER_SECONDS = 5.0
"""How often a process checks whether the process that writes the heartbeat file is gone."""


def report(
    *,
    step: int | None = None,
    epoch: int | None = None,
    total: int | None = None,
    loss: SupportsFloat | None = None,
    samples: int | None = None,
    activity: str | None = None,
    checkpoint: int | None = None,
    resumed: int | None = None,
    **metrics: SupportsFloat,
) -> None:
    """Reports the progress of training. Values that are not passed stay the same. A call takes a few microseconds.

        for step, (x, y) in enumerate(loader, start=1):
            loss = train_one_step(x, y)
            ddpjob.report(step=step, total=len(loader), loss=loss)

    Args:
        step: The number of the step that has just finished. The first step has the number 1, and the numbers go on
            after a restart.
        epoch: The number of the present epoch, from 1.
        total: The number of the last step of the training.
        loss: A number, or a tensor on the CPU that holds one number. A tensor on a GPU is left out, because the
            program would have to wait until it can be read: pass `loss.item()` where the program reads the loss
            anyway.
        samples: The number of samples per step, across all processes.
        activity: The activity that begins now: `training`, `saving`, `evaluation`, or another word. A finished step
            sets it to `training`; until the first step has finished, `training` is shown as `starting`. An evaluation
            that is reported again, such as after each batch, goes on: then it may take as long as it needs.
        checkpoint: The number of the step whose checkpoint is now complete.
        resumed: The number of the step whose checkpoint was loaded; 0 if there was no checkpoint. Pass it only if
            the program reports every checkpoint: if it has reported none, a start from the beginning is not counted
            as a loss.
        metrics: Other numbers, by name.
    """
    teller = _current or _look()
    if teller is None:
        return
    record, now = teller.record, time.monotonic()
    if step is not None and (number := _whole("step", step)) is not None:
        if record.counted != 0:  # The steps counted so far may have been numbered differently.
            record.counted, record.first_step = 0, number
        teller.finish(number, now)
    if activity is not None:
        teller.begin(str(activity), now)
    if epoch is not None and (number := _whole("epoch", epoch)) is not None:
        record.epoch = number
    if total is not None and (number := _whole("total", total)) is not None:
        record.total_steps = number
    if samples is not None and (number := _whole("samples", samples)) is not None:
        record.samples = number
    if checkpoint is not None and (number := _whole("checkpoint", checkpoint)) is not None:
        record.checkpoint_step, record.checkpoint_at = number, time.time()
    if resumed is not None and (number := _whole("resumed", resumed)) is not None:
        record.begins = FROM_CHECKPOINT if number > 0 else NOTHING_SAVED
    if loss is not None:
        loss_value = _number("loss", loss)
        record.loss = math.nan if loss_value is None else loss_value
        record.loss_is_nan = 1 if loss_value is not None and math.isnan(loss_value) else math.nan
    for name, value in metrics.items():
        teller.measure(name, _number(name, value))
    teller.write(now)


def report_step(step: int, epoch: int, loss: float | None) -> None:
    """Like `report` with these arguments, but quicker. Call `reports_steps` before."""
    if teller := _current or _look():
        record, now = teller.record, time.monotonic()
        record.epoch = epoch
        if loss is not None:
            record.loss, record.loss_is_nan = loss, 1 if loss != loss else math.nan  # noqa: PLR0124  (NaN)
        takes_over = record.counted != 0  # `reports_steps` was called while another process had the file.
        if takes_over:
            record.counted, record.first_step = 0, step
        teller.finish(step, now)
        teller.write(now, step_only=not takes_over)


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Reports an activity, `name`, for the duration of a block: `saving`, `evaluation`, or another word.

        with ddpjob.activity("evaluation"):
            evaluate(model)

    The time that the block takes does not count as part of a step.
    """
    teller = _current or _look()
    before = teller.record.activity if teller else None
    report(activity=name)
    try:
        yield
    finally:
        if teller and before:
            now = time.monotonic()
            teller.begin(before, now, heard=True)  # The earlier activity may have been detected, not reported.
            teller.write(now)


def measure(metrics: Mapping[str, SupportsFloat]) -> None:
    """Reports numbers by name, as `report` does. Without a supervisor it still warns of what is not a number."""
    teller = _current or _look()
    for name, value in metrics.items():
        if teller:
            teller.measure(name, _number(name, value))
        elif is_at_hand(value):
            _number(name, value)
    if teller:
        teller.write(time.monotonic())


def report_parts(parts: Mapping[str, float]) -> None:
    """Reports how many seconds each part took on average in recent steps. The keys are names from heartbeat.PARTS."""
    if teller := _current or _look():
        for part, seconds in parts.items():
            setattr(teller.record, part, seconds)
        teller.write(time.monotonic())


def reports_steps() -> None:
    """Declares that this program will report its steps, so that they need not be counted."""
    if teller := _current or _look():
        teller.record.counted = 0
        teller.write(time.monotonic())


def starts_over() -> None:
    """Reports that this program begins at the first step because it was asked to, even if there are checkpoints."""
    if teller := _current or _look():
        teller.record.begins = AS_ASKED
        teller.write(time.monotonic())


def announces_activities() -> None:
    """Declares that this program reports an activity whenever it does something long between two steps."""
    if teller := _current or _look():
        teller.announce()


def count_step(before: int | None = None) -> None:
    """Counts a finished step for a program that does not report its steps.

    `before` is the number of steps that were finished in earlier attempts, or None if it is unknown. It is used only
    for the first counted step.
    """
    teller = _current or _look()
    if teller and teller.record.counted != 0:
        record, now = teller.record, time.monotonic()
        if math.isnan(record.step):
            record.counted = COUNTED_ANEW if before is None and record.attempt > 1 else COUNTED
            teller.origin = before or 0
        teller.finish(teller.origin + 1 if math.isnan(record.step) else record.step + 1, now)
        teller.write(now)


def counted_steps() -> float | None:
    """The number of steps counted in this attempt; None if the program reports its steps, or has no supervisor."""
    teller = _current or _look()
    if teller is None or teller.record.counted == 0:
        return None
    return 0.0 if math.isnan(teller.record.step) else teller.record.step - teller.origin


def last_step() -> float | None:
    """The number of the last finished step; None: no step has finished, or the process has no supervisor."""
    return None if _current is None or math.isnan(_current.record.step) else _current.record.step


def hear_evaluation() -> None:
    """Reports that an evaluation goes on or, if the program does not report its evaluations, that it begins."""
    if teller := _current:
        record, now = teller.record, time.monotonic()
        if record.activity == EVALUATION or (record.activity == TRAINING and record.announces != 1):
            teller.begin(EVALUATION, now, heard=True)
            teller.write(now)


def hear_training() -> None:
    """Reports the end of an evaluation, if the program does not report its evaluations."""
    if _current and _current.record.activity == EVALUATION and _current.record.announces != 1:
        report(activity=TRAINING)


def see_bar(position: int, left: int | None, epoch: int | None, loss: float | None) -> None:
    """Reports the values of a progress bar that moves along with the counted steps.

    `left` is the number of steps that remain; if it is None, the total is unknown, too. After a restart, the number
    of the present step may be unknown. A bar whose `left` is known then supplies that number as `position`.
    """
    if not (teller := _current):
        return
    record = teller.record
    if left is not None and record.counted == COUNTED_ANEW:
        teller.origin += position - record.step
        # Unknown, because a bar over the remaining steps begins at 0 after every restart.
        record.first_step = math.nan
        record.step, record.counted = position, COUNTED
    record.total_steps = math.nan if left is None else min(record.step + left, LARGEST)
    if epoch is not None:
        record.epoch = epoch
    if loss is not None:
        record.loss, record.loss_is_nan = loss, 1 if math.isnan(loss) else math.nan
    teller.write(time.monotonic())


def tell_end() -> None:
    """Reports that the program has ended and finishes no more steps. Its process may still take seconds to end."""
    if _current:
        now = time.monotonic()
        _current.begin(ENDING, now)
        _current.write(now)


_current: Teller | None = None
_look_at = 0.0
"""When to try again to open the file, on the monotonic clock; infinity if never again."""


def _look() -> Teller | None:
    """Opens the heartbeat file, unless the environment names none or another process writes into it."""
    global _current, _look_at  # noqa: PLW0603  (a process has one heartbeat)
    if _look_at == math.inf or time.monotonic() < _look_at:
        return None
    _look_at = math.inf
    if path := os.environ.get(Env.HEARTBEAT):
        try:
            _current = Teller(path)
        except BlockingIOError:
            _look_at = time.monotonic() + TAKE_OVER_SECONDS
        except (OSError, ValueError) as error:
            warn_once("file", f"cannot report progress to the supervisor: {path}: {error}")
    return _current


def _forget() -> None:
    """Makes a forked child try to open the file itself."""
    global _current, _look_at
    _current, _look_at = None, 0.0


os.register_at_fork(after_in_child=_forget)


def _whole(name: str, value: int) -> int | None:
    """Converts a count to a plain number; None, with a warning, if it is not a count."""
    if type(value) is int and 0 <= value <= LARGEST:
        return value
    try:
        number = int(value) if is_at_hand(value) else -1
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = -1
    if 0 <= number <= LARGEST:
        return number
    warn_once(name, f"{name}=…: left out of the report, because it is not a whole number from 0 to 2**53")
    return None


def is_at_hand(value: object) -> bool:
    """Whether a value, which may be a tensor, can be read without waiting for a GPU."""
    return bool(getattr(value, "is_cpu", True))


def _number(name: str, value: SupportsFloat) -> float | None:
    """Converts a number to a float, which may be NaN or infinite; None, with a warning, if it cannot be reported."""
    if type(value) is float:  # Most values are floats, and skip the rest.
        return value
    if not is_at_hand(value):
        warn_once(
            name,
            f"{name}=…: left out of the report, because it is on a GPU: pass {name}.item() where the value is read"
            " anyway",
        )
        return None
    problem = "it is a string"
    try:
        if not isinstance(value, str):  # float() would accept "0.5".
            # float() of a tensor that requires a gradient prints a warning; item() does not.
            return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        problem = str(error)
    warn_once(name, f"{name}=…: left out of the report, because it is not a number: {problem}")
    return None

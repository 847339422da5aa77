"""How training code reports where it is: `report` and `activity`, for any program that a supervisor runs.

What is reported goes into the rank's heartbeat file, from which the supervisor reads it when it likes: neither waits
for the other. Without a supervisor all of this does nothing. It never stops a program: what cannot be reported is
left out, and stderr says so once. It never waits for a GPU: it takes no loss that has not been read already.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import SupportsFloat

from ddpjob_rank.environment import Env

from .heartbeat import AS_ASKED, COUNTED, COUNTED_ANEW, FROM_CHECKPOINT, LARGEST, NOTHING_SAVED
from .teller import ENDING, Teller, warn_once

FIELDS = frozenset({"step", "epoch", "total", "loss", "samples", "activity", "checkpoint", "resumed"})
"""What has a meaning of its own here. Other numbers of these names would be taken for it."""

TAKE_OVER_SECONDS = 5.0
"""How often a process checks whether the one that has written so far is gone."""


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
    """Reports where training is. What is not given stays as it was. A call takes a few microseconds.

    Args:
        step: The number of the step that is now finished. Counts from 1, and goes on counting after a restart.
        epoch: The present epoch; counts from 1.
        total: The number of the last step.
        loss: A number, or a tensor with one number on the CPU. One on a GPU is left out, since the program would have
            to wait to read it: give `loss.item()` where the program reads the loss anyway.
        samples: How many samples a step takes, of all processes together.
        activity: What begins now: `training`, `saving`, `evaluation`, or another word. A finished step means
            `training`; before the first one, all training is `starting`.
        checkpoint: The number of the step whose checkpoint is complete now.
        resumed: The number of the step whose checkpoint was loaded; 0 if there is none. Give it only if every
            checkpoint is reported: where none was, nothing is lost by beginning again.
        metrics: Other numbers, by name.
    """
    teller = _current or _look()
    if teller is None:
        return
    record, now = teller.record, time.monotonic()
    if step is not None and (number := _whole("step", step)) is not None:
        if record.counted != 0:  # The steps that were counted until now had other numbers.
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
        told = _number("loss", loss)
        record.loss = math.nan if told is None else told
        record.loss_is_nan = 1 if told is not None and math.isnan(told) else math.nan
    for name, value in metrics.items():
        teller.measure(name, _number(name, value))
    teller.write(now)


@contextmanager
def activity(name: str) -> Iterator[None]:
    """What happens inside is this activity: `saving`, `evaluation`, or another word. It is not part of a step."""
    teller = _current or _look()
    before = teller.record.activity if teller else None
    report(activity=name)
    try:
        yield
    finally:
        report(activity=before)


def report_parts(parts: Mapping[str, float]) -> None:
    """Reports what recent steps consist of: mean seconds, by names from heartbeat.PARTS."""
    if teller := _current or _look():
        for part, seconds in parts.items():
            setattr(teller.record, part, seconds)
        teller.write(time.monotonic())


def reports_steps() -> None:
    """This program will report its steps, so they need not be counted for it."""
    if teller := _current or _look():
        teller.record.counted = 0
        teller.write(time.monotonic())


def starts_over() -> None:
    """This program begins at the beginning because it was told to, whatever it has saved before."""
    if teller := _current or _look():
        teller.record.begins = AS_ASKED
        teller.write(time.monotonic())


def announces_activities() -> None:
    """This program is going to tell of all that takes long between two steps, if there ever is anything."""
    if teller := _current or _look():
        teller.record.announces = 1


def count_step(before: int | None = None) -> None:
    """One more step is finished, of a program that does not report steps itself.

    `before`: how many were finished in former attempts, used at the first one; None: unknown.
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
    """How many steps this program has made, as counted; None if it reports them itself, or no supervisor asks."""
    teller = _current or _look()
    if teller is None or teller.record.counted == 0:
        return None
    return 0.0 if math.isnan(teller.record.step) else teller.record.step - teller.origin


def see_bar(position: int, left: int | None, epoch: int | None, loss: float | None) -> None:
    """What a bar that moves along with counted steps shows.

    `left`: steps that are still to come; None: unknown, and no total is trusted any more. If steps are counted from
    the start again after a restart, a bar that knows how many are left knows at which one, `position`, the program
    is.
    """
    if not (teller := _current):
        return
    record = teller.record
    if left is not None and record.counted == COUNTED_ANEW:
        teller.origin += position - record.step
        record.first_step = math.nan  # A bar over what is left begins at 0, wherever the program went on.
        record.step, record.counted = position, COUNTED
    record.total_steps = math.nan if left is None else min(record.step + left, LARGEST)
    if epoch is not None:
        record.epoch = epoch
    if loss is not None:
        record.loss, record.loss_is_nan = loss, 1 if math.isnan(loss) else math.nan
    teller.write(time.monotonic())


def tell_end() -> None:
    """The program has ended, and finishes no more steps; its process may still take seconds to end."""
    if _current:
        now = time.monotonic()
        _current.begin(ENDING, now)
        _current.write(now)


_current: Teller | None = None
_look_at = 0.0
"""When to look for the file, by the monotonic clock; infinity: never again."""


def _look() -> Teller | None:
    """Opens the file that the environment names, unless there is none or another process writes into it."""
    global _current, _look_at  # noqa: PLW0603  (there is one heartbeat in a process)
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
    """A forked process is a new one."""
    global _current, _look_at
    _current, _look_at = None, 0.0


os.register_at_fork(after_in_child=_forget)


def _whole(name: str, value: int) -> int | None:
    """A count as a plain number; None if it is not one."""
    if type(value) is int and 0 <= value <= LARGEST:
        return value
    try:
        number = int(value) if is_at_hand(value) else -1
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = -1
    if 0 <= number <= LARGEST:
        return number
    warn_once(name, f"report({name}=…): left out, because it is not a whole number from 0 to 2**53")
    return None


def is_at_hand(value: object) -> bool:
    """Whether a value, which may be a tensor, can be read without waiting for a GPU."""
    return bool(getattr(value, "is_cpu", True))


def _number(name: str, value: SupportsFloat) -> float | None:
    """A number as a plain one, which may be NaN or infinite; None if there is none that can be reported."""
    if not is_at_hand(value):
        warn_once(
            name,
            f"report({name}=…): left out, because it is on a GPU: pass {name}.item() where the value is read anyway",
        )
        return None
    try:
        # A tensor that is part of a graph warns when it becomes a float.
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        warn_once(name, f"report({name}=…): left out, because it is not a number: {error}")
        return None

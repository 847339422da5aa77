"""Reads the total number of steps from a program's tqdm bars, if the program does not report it.

A bar is trusted only when it has moved along with the counted steps, so that the bar of a download or an evaluation
is not mistaken for training. The number of steps per unit of the bar is measured: it is 1 for a bar over steps, and
more for a bar over epochs. A bar over a loader, or over anything else but numbers, is one pass over the data, and
does not show when training ends. Neither does a bar over numbers that is followed by another bar over steps.
"""

import math
import os
import re
import weakref
from types import ModuleType, NoneType
from typing import Any

from ddpjob_rank.environment import Env
from ddpjob_rank.importing import once_imported

from .evaluations_seen import HEARD
from .report import counted_steps, see_bar

BARS = "tqdm.std"
LOSS = re.compile(r"(?:^|[\s,])loss=([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf))(?:,|\s|$)")
COARSE = 1.5
"""A bar whose unit takes at least this many steps counts epochs, not steps."""


def install() -> None:
    """Watches progress bars from now on, if this process has a supervisor."""
    if Env.HEARTBEAT in os.environ:
        once_imported(BARS, _watch)


def _watch(tqdm: ModuleType) -> None:
    """Reads each bar whenever it is drawn, which happens at most ten times a second."""
    bars, refresh = Bars(), tqdm.tqdm.refresh

    def watched(bar: Any, *arguments: Any, **options: Any) -> Any:
        drawn = refresh(bar, *arguments, **options)
        bars.look(bar)
        return drawn

    tqdm.tqdm.refresh = watched


class Bars:
    """Follows the bars of a process. The oldest bar that moves along with the steps is trusted."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[Any, _Seen] = weakref.WeakKeyDictionary()
        self._believed: weakref.ref[Any] | None = None
        self._passes = 0
        """How many bars over steps have been trusted so far."""

    def look(self, bar: Any) -> None:
        """Reads the position of a bar. An error here must not stop the program."""
        try:
            if bar.n != bar.last_print_n:  # The bar has moved since it was last drawn.
                HEARD.goes_on()
            self._look(bar)
        except Exception:  # noqa: BLE001  (a bar's attributes may hold anything, and the user's step must not fail)
            return

    def _look(self, bar: Any) -> None:
        steps = counted_steps()
        if steps is None or getattr(bar, "disable", True):
            return
        seen = self._seen.get(bar)
        if seen is None or bar.n < seen.last:
            self._seen[bar] = _Seen(bar.n, steps)
            return
        believed = self._believed() if self._believed else None
        if believed is not None and believed is not bar and not believed.disable:
            return
        if bar.n == seen.last or steps == seen.steps:
            return
        seen.last = bar.n
        per_unit = (steps - seen.steps) / (bar.n - seen.n)
        if believed is not bar:
            self._believed = weakref.ref(bar)
            self._passes += per_unit < COARSE
        see_bar(round(bar.n * per_unit), *self._told(bar, per_unit), _loss(bar))

    def _told(self, bar: Any, per_unit: float) -> tuple[int | None, int | None]:
        """The number of remaining steps and the number of the present epoch; None if unknown."""
        epoch = math.floor(bar.n) + 1 if per_unit >= COARSE else None
        is_one_pass = per_unit < COARSE and (self._passes > 1 or not isinstance(bar.iterable, range | NoneType))
        if not bar.total or is_one_pass:
            return None, epoch
        return round(max(0.0, (bar.total - bar.n) * per_unit)), None if epoch is None else min(
            epoch, math.ceil(bar.total)
        )


class _Seen:
    """Where a bar is.

    Holds its position and the number of counted steps when it was first seen, and its last position.
    """

    def __init__(self, n: float, steps: float) -> None:
        self.n = self.last = n
        self.steps = steps


def _loss(bar: Any) -> float | None:
    """The loss that is shown after a bar, as with `set_postfix(loss=…)`."""
    found = LOSS.search(str(getattr(bar, "postfix", None) or ""))
    return float(found[1]) if found else None

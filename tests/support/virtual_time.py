"""Virtual time: when everything in a program waits, its clock jumps to the time for which it waits."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 0.01
"""How long data sent on this machine can take to arrive. If nothing has arrived by then, nothing is on its way."""
ROUND_SECONDS = 0.0001
"""How much time each round of the event loop takes on its clock, so that time passes even if the program never
waits."""


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += ROUND_SECONDS
        if not timeout:
            return super().select(timeout)
        ready = super().select(GRACE_SECONDS)
        if not ready:
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(program: Coroutine[Any, Any, T]) -> T:
    """Runs a program as `asyncio.run` does.

    It must contain both ends of its connections, and must not use threads.
    """
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(program)

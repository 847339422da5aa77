"""Time that nobody has to wait for: while a whole program waits, its clock jumps to what it waits for."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 0.01
"""What is sent on this machine arrives sooner: if nothing has by then, nothing is on its way."""
ROUND_SECONDS = 0.0001
"""What each round of the loop takes, on its clock: whoever never waits comes to an end too."""


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
    """Runs a program as `asyncio.run` does. Both ends of its connections have to be in it, and no thread."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(program)

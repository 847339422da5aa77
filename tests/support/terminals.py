"""Terminals of the tests' own, and what appears on them."""

import os
import select
import time
from collections.abc import Callable

from tests.support.waiting import patience

DEADLINE_SECONDS = 60.0


class Seen:
    """What is printed on a terminal, read from its other end."""

    def __init__(self, descriptor: int, story: Callable[[], object] = lambda: "") -> None:
        self.descriptor = descriptor
        self.text = ""
        self._story = story
        self._passed = 0

    def until(self, text: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Waits until a text appears, after the one that was waited for before."""
        begun = time.monotonic()
        while (at := self.text.find(text, self._passed)) < 0:
            waited = time.monotonic() - begun
            assert waited < patience(seconds), f"no {text!r} in {self.text!r}\n{self._story()}"
            assert self.read(0.1), f"the terminal was closed after {self.text!r}\n{self._story()}"
        self._passed = at + len(text)

    def read(self, seconds: float) -> bool:
        """Reads what is printed within some seconds; False if the terminal is closed."""
        if select.select([self.descriptor], [], [], seconds)[0]:
            try:
                data = os.read(self.descriptor, 1 << 16)
            except OSError:
                return False
            self.text += data.decode(errors="replace")
            return bool(data)
        return True

    def type(self, text: str) -> None:
        """Types a text."""
        os.write(self.descriptor, text.encode())

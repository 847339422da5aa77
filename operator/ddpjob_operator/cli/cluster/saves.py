"""Notices that files were saved."""

import time
from collections.abc import Callable

from ddpjob_operator.client.source import Stamps

LOOK_SECONDS = 0.2
"""Seconds between two looks. Looking works on every file system; a watch by the kernel misses what other machines
write."""
SHARE = 10
"""A look takes at most one part in SHARE of the time, so that a large folder costs no core."""


class Saves:
    """Files that people edit. Saves that follow each other at once count as one.

    Example:
        saves = Saves(lambda: stamps(folder))
        while True:
            saves.wait()
            run(read_folder(folder))
    """

    def __init__(self, look: Callable[[], Stamps]) -> None:
        """`look` returns something else after each save."""
        self._look = look
        self._seen = look()
        self._happened = False
        self._next = 0.0

    def happened(self) -> bool:
        """Whether a file was saved since the last `wait`. It looks at most every LOOK_SECONDS."""
        if not self._happened and time.monotonic() >= self._next:
            now = self._looked()
            self._happened = now != self._seen
            while now != self._seen:  # Until nothing more is written.
                self._seen = now
                self._pause()
                now = self._looked()
        return self._happened

    def wait(self) -> None:
        """Returns at the next save, or at once if one has happened already."""
        while not self.happened():
            self._pause()
        self._happened = False

    def within(self, seconds: float) -> bool:
        """Whether a file is saved within so many seconds, or has been since the last `wait`."""
        deadline = time.monotonic() + seconds
        while not self.happened() and time.monotonic() < deadline:
            self._pause()
        return self._happened

    def _looked(self) -> Stamps:
        began = time.monotonic()
        stamps = self._look()
        ended = time.monotonic()
        self._next = ended + max(LOOK_SECONDS, SHARE * (ended - began))
        return stamps

    def _pause(self) -> None:
        time.sleep(max(0.0, self._next - time.monotonic()))

"""Measures how long callbacks block the event loop. Python imports this at its start if the folder is on its path.

Whenever a callback has blocked the loop for longer than any earlier one, a line on stderr reports the time. It is
given as seconds of the process's CPU time, of all threads, because another thread, in which the operator decides, may
hold the interpreter's lock. Time in which a busy machine ran other processes does not count.
"""

import asyncio.events
import sys
import time

_run = asyncio.events.Handle._run
_longest = [0.0]


def _timed(handle: asyncio.events.Handle) -> None:
    began = time.process_time()
    _run(handle)
    used = time.process_time() - began
    if used > _longest[0]:
        _longest[0] = used
        print(f"the loop stood still for {used:.4f} s", file=sys.stderr, flush=True)


asyncio.events.Handle._run = _timed  # type: ignore[method-assign]

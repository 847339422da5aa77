"""What a Python imports first that has this folder on its path: says how long its event loop stands still.

Whenever a callback has kept the loop from others for longer than any before, a line on stderr says so: in seconds of
CPU time of the process, all threads together, as a thread that decides may hold the interpreter's lock meanwhile. The
time for which a busy machine ran something else is no part of it.
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

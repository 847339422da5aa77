"""Memory that nobody uses any more is given back, now and then: by itself that would happen late, or never.

Python looks for circles of garbage among its older objects only once a million new ones have come, and the C library
keeps what was freed between what is in use.
"""

import ctypes
import gc


def give_back() -> None:
    """Collects all garbage, and returns to the machine what is free: some milliseconds, more with many jobs."""
    gc.collect()
    if _trim is not None:
        _trim(0)


_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's; other C libraries give back by themselves."""

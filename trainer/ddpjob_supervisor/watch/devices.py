"""Asks the driver about this node's GPUs without waiting for it for long: a broken one may keep it from answering."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from ddpjob_supervisor.gpu.health import Gpu, nodes_of
from ddpjob_supervisor.gpu.nvml import Nvml, nvml

from .threads import in_thread

T = TypeVar("T")

SECONDS = 5.0
"""The driver usually answers within a tenth of a second; where it has to wake up, within two."""


async def present() -> list[Gpu]:
    """The GPUs of this container as they were when they were first asked for; none if there are none."""
    return await _asked(lambda driver: driver.before, [])


async def broken() -> str | None:
    """What has broken since then, in a sentence; None: nothing that shows."""
    return await _asked(Nvml.broken, None)


async def nodes(env: Mapping[str, str], processes: int) -> list[int | None]:
    """The NUMA node of each process's GPU, if it is known of any."""
    return await _asked(lambda driver: nodes_of(driver.before, env, processes), [])


async def _asked(question: Callable[[Nvml], T], unknown: T) -> T:
    def work() -> T:
        driver = nvml()
        return unknown if driver is None else question(driver)

    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            return await in_thread(work)
    return unknown

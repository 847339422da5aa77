"""Asks the driver about this node's GPUs without waiting for it for long: a broken one may keep it from answering."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from ddpjob_supervisor.gpu.health import Gpu
from ddpjob_supervisor.gpu.nvml import Nvml, nvml
from ddpjob_supervisor.gpu.signs import Fact
from ddpjob_supervisor.gpu.visible import nodes_of, of_rank, visible

from .threads import in_thread

T = TypeVar("T")

SECONDS = 5.0
"""The driver usually answers within a tenth of a second; where it has to wake up, within two."""


async def present(env: Mapping[str, str]) -> list[Gpu]:
    """The GPUs that processes with this environment see, as they are now; none if there are none."""
    return await _asked(lambda driver: [gpu for gpu in visible(driver.begin(), env) if gpu is not None], [])


async def begin(env: Mapping[str, str], processes: int) -> list[int | None]:
    """An attempt begins: what happens to GPUs from now on is its. Returns the NUMA node of each process's GPU."""
    return await _asked(lambda driver: nodes_of(visible(driver.begin(), env), processes), [])


async def facts(env: Mapping[str, str], local_rank: int, processes: int, seconds: float = SECONDS) -> list[Fact]:
    """What has happened in this attempt to the GPUs of one of a node's processes, the gravest first."""

    def known(driver: Nvml) -> list[Fact]:
        own = {gpu.index for gpu in of_rank(visible(driver.before, env), local_rank, processes)}
        return [fact for fact in driver.facts() if fact.gpu in own or (fact.gpu is None and own)]

    return await _asked(known, [], seconds)


async def _asked(question: Callable[[Nvml], T], unknown: T, seconds: float = SECONDS) -> T:
    def work() -> T:
        driver = nvml()
        return unknown if driver is None else question(driver)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await in_thread(work)
    return unknown

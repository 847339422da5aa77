"""Queries the driver about this node's GPUs, with a timeout, because it may never answer if a GPU is broken."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import TypeVar

from ddpjob_rank.console import warn
from ddpjob_rank.environment import GLOO, Env

from ddpjob_supervisor.gpu.health import Gpu
from ddpjob_supervisor.gpu.nvml import Nvml, nvml
from ddpjob_supervisor.gpu.signs import Fact
from ddpjob_supervisor.gpu.visible import nodes_of, of_rank, visible

from .threads import in_thread

T = TypeVar("T")

ASKING = Lock()
"""Held by the thread that queries the driver, so that no more threads get stuck if the driver never answers."""

SECONDS = 5.0
"""The timeout. The driver usually answers within 0.1 seconds, or within 2 seconds if it must be loaded first."""


async def present(env: Mapping[str, str]) -> list[Gpu]:
    """The present state of the GPUs that are visible to processes with this environment."""
    return await _asked(env, lambda driver: [gpu for gpu in visible(driver.begin(), env) if gpu is not None], [])


async def begin(env: Mapping[str, str], processes: int) -> list[int | None]:
    """Begins an attempt, from which on `facts` counts. Returns the NUMA node of each process's GPU."""
    return await _asked(env, lambda driver: nodes_of(visible(driver.begin(), env), processes), [])


async def facts(env: Mapping[str, str], processes: int, seconds: float = SECONDS) -> list[list[Fact]]:
    """What has happened in this attempt to the GPUs of each of a node's processes, the most severe first."""

    def known(driver: Nvml) -> list[list[Fact]]:
        shown, happened = visible(driver.before, env), driver.facts()
        each = ({gpu.index for gpu in of_rank(shown, local, processes)} for local in range(processes))
        return [[fact for fact in happened if fact.gpu in own or (fact.gpu is None and own)] for own in each]

    return await _asked(env, known, [[] for _ in range(processes)], seconds)


async def _asked(env: Mapping[str, str], question: Callable[[Nvml], T], unknown: T, seconds: float = SECONDS) -> T:
    def work() -> T:
        if not ASKING.acquire(timeout=seconds):
            return unknown
        try:
            driver = nvml()
            return unknown if driver is None else question(driver)
        except Exception as error:  # noqa: BLE001  (no error of the driver may end the supervisor)
            warn(f"cannot ask the driver about GPUs: {type(error).__name__}: {error}")
            return unknown
        finally:
            ASKING.release()

    if env.get(Env.BACKEND) == GLOO:  # With gloo, the job trains on CPUs.
        return unknown
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await in_thread(work)
    return unknown

"""One plant for all plans. Several plans run at the same time, each in its own namespace."""

import asyncio
import gc
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import aiohttp
import pytest

from tests.plant import Plant, start_fake
from tests.plant.kueue import install_kinds
from tests.plant.needs import demand
from tests.support.crd import install_crd

from . import clock
from .calls import QUEUED
from .conductor import Outcome, live
from .faults import HalfOpen
from .oracle import Account
from .page import begin
from .plan import Plan
from .plans import undisturbed
from .rig import session_of

AT_ONCE = 8
PLAN_SECONDS = 600.0


def pytest_sessionfinish() -> None:
    """Collects the connections that test_faults describes. After the last test, no filter ignores their warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Matrix:
    """Runs plans on an event loop of its own. The undisturbed lives are always among them."""

    def __init__(self, plant: Plant, plans: list[Plan]) -> None:
        self._plant = plant
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="faults", daemon=True)
        self._thread.start()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._upstream = asyncio.run_coroutine_threadsafe(self._session(), self._loop).result()
        self._outcomes: dict[str, Future[Outcome]] = {}
        lives = {plan.life.name: plan.life for plan in plans}
        for plan in (*map(undisturbed, lives.values()), *sorted(plans, key=_is_short)):
            self._start(plan)

    def outcome(self, plan: Plan) -> Outcome:
        """Waits until a plan has ended, and returns its outcome."""
        return self._start(plan).result(PLAN_SECONDS)

    def usual_seconds(self, plan: Plan) -> dict[str, float]:
        """How many seconds each stage of the undisturbed life took."""
        return self.outcome(undisturbed(plan.life)).seconds

    def close(self) -> None:
        """Cancels all plans that have not ended."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _start(self, plan: Plan) -> Future[Outcome]:
        if plan.name not in self._outcomes:
            self._outcomes[plan.name] = asyncio.run_coroutine_threadsafe(self._live(plan), self._loop)
        return self._outcomes[plan.name]

    async def _live(self, plan: Plan) -> Outcome:
        async with self._slots:
            usual = None if plan is undisturbed(plan.life) else self._account(plan)
            return await live(plan, self._plant, self._upstream, usual)

    async def _account(self, plan: Plan) -> Account:
        return (await asyncio.wrap_future(self._start(undisturbed(plan.life)))).account

    async def _session(self) -> aiohttp.ClientSession:
        return session_of(self._plant)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._upstream.close()


@pytest.fixture(scope="session")
def matrix(request: pytest.FixtureRequest) -> Iterator[Matrix]:
    """All plans that have to be tested. They are already running."""
    demand("fake")
    if "FAULT_MATRIX" in os.environ:
        begin(Path(os.environ["FAULT_MATRIX"]))
    if clock.what_is_lacking() is None:
        clock.install()
    asked = [item.callspec.params.get("plan") for item in request.session.items if hasattr(item, "callspec")]
    plans = [plan for plan in asked if isinstance(plan, Plan) and not plan.lacks]
    with start_fake(pod_groups=True) as plant:
        install_crd(plant)
        install_kinds(plant, QUEUED)
        matrix = Matrix(plant, plans)
        try:
            yield matrix
        finally:
            matrix.close()


def _is_short(plan: Plan) -> bool:
    """Whether a plan has no silent watch. Plans with a silent watch take longest, so they begin first."""
    return not any(isinstance(fault.effect, HalfOpen) for fault in plan.faults)

"""What the log says of an election that does not go on, and what a leader knows of its time."""

import asyncio
import contextlib
import json
import math
import sys
import time
from typing import Any

import pytest
from ddpjob_operator.cluster.kube import lease
from ddpjob_operator.cluster.kube.api_client import PODS, ApiClient, ApiError, FencedError
from ddpjob_operator.cluster.kube.connection import Connection
from ddpjob_operator.cluster.kube.lease import LEADING_SECONDS, LEASE_SECONDS, RETRY_SECONDS, LeaderElector

from tests.support import virtual_time


class Hanging(Connection):
    """The connection to a server that never answers."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def send(self, *_: Any, **__: Any) -> tuple[int, bytes, None]:
        return await asyncio.get_running_loop().create_future()


def an_elector(connection: Connection, identity: str = "me") -> LeaderElector:
    return LeaderElector(ApiClient(connection, lambda: True), "ddpjob-system", "ddpjob-operator", identity)


async def a_leader(connection: Connection) -> tuple[LeaderElector, asyncio.Task[None]]:
    """One that has been elected, and its `run`, which goes on."""
    elector = an_elector(connection)
    running = asyncio.create_task(elector.run())
    await elector.elected.wait()
    return elector, running


@pytest.fixture
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica's clock is that of its timers."""
    monkeypatch.setattr(lease, "steady", lambda: asyncio.get_running_loop().time())


async def campaign() -> None:
    async with asyncio.timeout(LEADING_SECONDS + 0.5):
        await an_elector(Hanging()).run()


def test_a_lease_that_is_not_answered_for_in_time_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TimeoutError):
        virtual_time.run(campaign())
    assert caplog.messages == ["lease ddpjob-system/ddpjob-operator: no answer in time"]


class Granting(Connection):
    """The connection to a server whose Lease is free, and later ours."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] = {"metadata": {}, "spec": {}}
        self.written: list[str] = []

    async def send(self, *words: Any, **_: Any) -> tuple[int, bytes, None]:
        _, path, data, check = words
        check()
        if data is not None:
            self.written.append(path)
            if "/leases/" in path:
                self.lease = json.loads(data)
        return 200, json.dumps(self.lease).encode(), None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no clock goes on while a machine is suspended")
def test_a_leader_whose_machine_was_suspended_past_its_lease_writes_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its timers wait by a clock that stood still: none of them has told it yet."""
    suspended = 0.0
    clocks = time.clock_gettime
    monkeypatch.setattr(
        "time.clock_gettime", lambda clock: clocks(clock) + suspended * (clock == time.CLOCK_BOOTTIME)
    )

    async def play() -> None:
        nonlocal suspended
        connection = Granting()
        elector, running = await a_leader(connection)
        jobs = ApiClient(connection, lambda: elector.leads)
        await jobs.merge(PODS, "team", "digits-0", {})
        suspended, written = 3600.0, len(connection.written)
        with pytest.raises(FencedError):
            await jobs.merge(PODS, "team", "digits-0", {})
        await asyncio.wait_for(running, 2 * RETRY_SECONDS)
        assert len(connection.written) == written

    virtual_time.run(play())


class Leases:
    """The server of one Lease, which replicas reach each over a connection of its own."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    def answer(self, method: str, data: bytes | None) -> tuple[int, dict[str, Any]]:
        if data is None:
            return (404, {}) if self.lease is None else (200, self.lease)
        sent = json.loads(data)
        there = None if self.lease is None else self.lease["metadata"]["resourceVersion"]
        if (method == "POST") != (there is None) or sent["metadata"].get("resourceVersion") != there:
            return 409, {}
        self.version += 1
        self.lease = {**sent, "metadata": {**sent["metadata"], "resourceVersion": str(self.version)}}
        return 200, self.lease

    def is_taken_by(self, identity: str) -> None:
        assert self.lease is not None
        spec = {**self.lease["spec"], "holderIdentity": identity, "renewTime": "now"}
        self.answer("PUT", json.dumps({**self.lease, "spec": spec}).encode())

    @property
    def holder(self) -> str:
        return "" if self.lease is None else str(self.lease["spec"]["holderIdentity"])


class Slow(Connection):
    """A connection to a server that needs a while for each request."""

    def __init__(self, leases: Leases, seconds: float) -> None:
        self._leases = leases
        self._seconds = seconds
        self.asked: list[str] = []

    async def send(self, *words: Any, **_: Any) -> tuple[int, bytes, None]:
        method, _, data, _ = words
        self.asked.append(method)
        await asyncio.sleep(self._seconds)
        status, answer = self._leases.answer(method, data)
        return status, json.dumps(answer).encode(), None


class Late(Connection):
    """A connection whose first write is done at once and answered late, and then nothing any more; or never late."""

    def __init__(self, leases: Leases, seconds: float) -> None:
        self._leases = leases
        self._seconds = seconds
        self._cut = False

    async def send(self, *words: Any, **_: Any) -> tuple[int, bytes, None]:
        method, _, data, _ = words
        if self._cut:
            await asyncio.get_running_loop().create_future()
        status, answer = self._leases.answer(method, data)
        if data is not None and self._seconds < math.inf:
            self._cut = True
            await asyncio.sleep(self._seconds)
        return status, json.dumps(answer).encode(), None


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize("late", [0.0, 2.0, LEADING_SECONDS - 0.1])
def test_no_two_lead_at_once_however_late_the_last_answer_to_a_leader_comes(late: float) -> None:
    """It leads for so long from its request on: from the answer on, another might have taken over by then."""

    async def play() -> None:
        leases, clock = Leases(), asyncio.get_running_loop().time
        first, second = (
            an_elector(connection, identity)
            for identity, connection in (("first", Late(leases, late)), ("second", Late(leases, math.inf)))
        )
        asked = clock()
        tasks = [asyncio.create_task(one.run()) for one in (first, second)]
        await first.elected.wait()
        assert clock() - asked >= late
        led_until = 0.0
        while not second.leads:
            led_until = clock() if first.leads else led_until
            await asyncio.sleep(0.25)
            assert clock() - asked < LEASE_SECONDS + 2 * RETRY_SECONDS
        assert led_until - asked == pytest.approx(LEADING_SECONDS, abs=0.3)
        assert not first.leads
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    virtual_time.run(play())


def test_a_leader_that_finds_another_one_s_name_in_the_lease_does_not_wait_for_its_own_clock() -> None:
    """It stood still: the host of its virtual machine had paused that."""

    async def play() -> None:
        leases = Leases()
        elector, running = await a_leader(Late(leases, math.inf))
        leases.is_taken_by("another")
        await asyncio.wait_for(running, 2 * RETRY_SECONDS + 0.5)
        assert not elector.leads
        assert leases.holder == "another"

    virtual_time.run(play())


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize(("seconds", "renewals"), [(0.0, 60), (2.0, 30)])
def test_a_leader_renews_by_one_request_and_outlasts_a_slow_api_server(seconds: float, renewals: int) -> None:
    async def play() -> None:
        connection = Slow(Leases(), seconds)
        elector, running = await a_leader(connection)
        assert connection.asked == ["GET", "POST"]
        await asyncio.wait((running,), timeout=60)
        assert elector.leads
        assert set(connection.asked[2:]) == {"PUT"}
        assert len(connection.asked[2:]) == pytest.approx(renewals, abs=2)
        running.cancel()

    virtual_time.run(play())


@pytest.mark.usefixtures("virtual_clock")
def test_a_lease_that_was_deleted_is_created_again_by_its_leader() -> None:
    async def play() -> None:
        leases = Leases()
        elector, running = await a_leader(Late(leases, math.inf))
        leases.lease = None
        await asyncio.wait((running,), timeout=LEADING_SECONDS)
        assert elector.leads
        assert leases.holder == "me"
        running.cancel()

    virtual_time.run(play())


@pytest.mark.usefixtures("virtual_clock")
def test_a_lease_that_its_leader_releases_is_free_at_once() -> None:
    async def play() -> None:
        leases, clock = Leases(), asyncio.get_running_loop().time
        first, running = await a_leader(Late(leases, math.inf))
        second = an_elector(Late(leases, math.inf), "second")
        next_one = asyncio.create_task(second.run())
        await asyncio.sleep(RETRY_SECONDS / 2)
        released = clock()
        await first.release()
        assert (first.leads, leases.holder) == (False, "")
        await second.elected.wait()
        assert clock() - released <= RETRY_SECONDS
        for task in (running, next_one):
            task.cancel()

    virtual_time.run(play())


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize("was_leader", [True, False])
def test_a_lease_that_another_one_holds_is_not_released(*, was_leader: bool) -> None:
    async def play() -> None:
        leases = Leases()
        first, running = await a_leader(Late(leases, math.inf))
        second = an_elector(Late(leases, math.inf), "second")
        leases.is_taken_by("second")
        await (first if was_leader else second).release()
        assert leases.holder == "second"
        assert not second.leads
        assert first.leads is not was_leader
        running.cancel()

    virtual_time.run(play())


@pytest.mark.parametrize(("status", "outcome"), [(409, False), (500, None)], ids=["others were faster", "it failed"])
def test_a_lease_that_cannot_be_written_is_not_held(status: int, outcome: bool | None) -> None:  # noqa: FBT001
    class Refusing(Connection):
        def __init__(self) -> None:
            """Nothing is connected."""

        async def send(self, *_: Any, **__: Any) -> tuple[int, bytes, None]:
            return status, b"{}", None

    async def play() -> bool | None:
        with contextlib.suppress(ApiError):
            return await an_elector(Refusing())._write(None)
        return None

    assert asyncio.run(play()) is outcome


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize("elected", [True, False])
def test_who_no_longer_leads_does_not_take_its_own_lease_again(*, elected: bool) -> None:
    async def play() -> None:
        elector = an_elector(Hanging())
        if elected:
            elector.elected.set()
        assert elector._is_free({"spec": {"holderIdentity": "me"}}) is not elected

    virtual_time.run(play())

"""What the log says of an election that does not go on, and what a leader knows of its time."""

import asyncio
import json
import sys
import time
from typing import Any

import pytest
from ddpjob_operator.cluster.kube.api_client import PODS, ApiClient, FencedError
from ddpjob_operator.cluster.kube.connection import Connection
from ddpjob_operator.cluster.kube.lease import LEADING_SECONDS, RETRY_SECONDS, LeaderElector

from tests.support import virtual_time


class Hanging(Connection):
    """The connection to a server that never answers."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def send(self, *_: Any, **__: Any) -> tuple[int, bytes, None]:
        return await asyncio.get_running_loop().create_future()


async def campaign() -> None:
    async with asyncio.timeout(LEADING_SECONDS + 0.5):
        await LeaderElector(ApiClient(Hanging(), lambda: True), "ddpjob-system", "ddpjob-operator", "me").run()


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
        elector = LeaderElector(ApiClient(connection, lambda: True), "ddpjob-system", "ddpjob-operator", "me")
        jobs = ApiClient(connection, lambda: elector.leads)
        running = asyncio.create_task(elector.run())
        await elector.elected.wait()
        await jobs.merge(PODS, "team", "digits-0", {})
        suspended, written = 3600.0, len(connection.written)
        with pytest.raises(FencedError):
            await jobs.merge(PODS, "team", "digits-0", {})
        await asyncio.wait_for(running, 2 * RETRY_SECONDS)
        assert len(connection.written) == written

    virtual_time.run(play())


def test_a_leader_that_finds_another_one_s_name_in_the_lease_does_not_wait_for_its_own_clock() -> None:
    """It stood still: the host of its virtual machine had paused that."""

    async def play() -> None:
        connection = Granting()
        elector = LeaderElector(ApiClient(connection, lambda: True), "ddpjob-system", "ddpjob-operator", "me")
        running = asyncio.create_task(elector.run())
        await elector.elected.wait()
        connection.lease["spec"] |= {"holderIdentity": "another", "renewTime": "now"}
        await asyncio.wait_for(running, 2 * RETRY_SECONDS + 0.5)
        assert not elector.leads
        assert connection.lease["spec"]["holderIdentity"] == "another"

    virtual_time.run(play())

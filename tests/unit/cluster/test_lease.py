"""What the log says of an election that does not go on."""

import asyncio
from typing import Any

import pytest
from ddpjob_operator.cluster.api import Api
from ddpjob_operator.cluster.connection import Connection
from ddpjob_operator.cluster.lease import LEADING_SECONDS, Elector

from tests.support import virtual_time


class Hanging(Connection):
    """The connection to a server that never answers."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def send(self, *_: Any, **__: Any) -> tuple[int, bytes, None]:
        return await asyncio.get_running_loop().create_future()


async def campaign() -> None:
    async with asyncio.timeout(LEADING_SECONDS + 0.5):
        await Elector(Api(Hanging(), lambda: True), "ddpjob-system", "ddpjob-operator", "me").run()


def test_a_lease_that_is_not_answered_for_in_time_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TimeoutError):
        virtual_time.run(campaign())
    assert caplog.messages == ["lease ddpjob-system/ddpjob-operator: no answer in time"]

"""What the operator as a whole makes of a namespace that is closed to it."""

import asyncio
import logging
from contextlib import AsyncExitStack
from itertools import chain
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from ddpjob_operator.cluster.api import DDPJOBS, Api, ApiError, Resource
from ddpjob_operator.cluster.operator import Operator
from ddpjob_operator.cluster.options import parse


class Closed(Api):
    """An API server that shows a job in each namespace but those that are closed."""

    def __init__(self, status: int) -> None:
        self.closed: set[str] = set()
        self.status = status

    async def list(self, resource: Resource[Any], namespace: str | None, *_: Any) -> Any:
        if namespace in self.closed:
            raise ApiError(self.status, "Forbidden", f"nobody may list in {namespace}")
        job = {"metadata": {"name": "digits", "namespace": namespace, "uid": f"{namespace}", "resourceVersion": "1"}}
        return [msgspec.convert(job, resource.type)] if resource is DDPJOBS else [], 1


def listing(*namespaces: str, rounds: tuple[set[str], ...], status: int = 403) -> list[str]:
    """The namespaces whose jobs are known after as many lists, each with these namespaces closed."""

    async def play() -> list[str]:
        connection: Any = SimpleNamespace(clock=SimpleNamespace(now=None), server="here")
        operator = Operator(parse(["--no-leader-elect", *(f"--namespace={one}" for one in namespaces)]), connection)
        api = operator._api = Closed(status)
        for follower in chain.from_iterable(operator._followers.values()):
            follower._api = api
        async with AsyncExitStack() as stack:
            stack.push_async_callback(operator._hearing.close)
            stack.push_async_callback(operator._witnesses.close)
            for api.closed in rounds:
                await operator._list()
        return sorted(namespace for (namespace, _), _ in operator._store.jobs.all())

    return asyncio.run(play())


def test_a_closed_namespace_hides_no_other_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert listing("blue", "gone", "green", rounds=({"gone"}, {"gone"})) == ["blue", "green"]
    assert caplog.messages == ["namespace gone: nobody may list in gone; the others go on"]


def test_a_namespace_that_is_opened_again_is_known_again() -> None:
    assert listing("blue", "gone", rounds=({"gone"}, set())) == ["blue", "gone"]


def test_where_there_is_one_namespace_its_being_closed_is_a_failure() -> None:
    with pytest.raises(ApiError, match="nobody may"):
        listing("gone", rounds=({"gone"},))


def test_a_list_that_has_expired_halfway_is_a_failure_and_closes_no_namespace() -> None:
    with pytest.raises(ApiError, match="nobody may"):
        listing("blue", "gone", rounds=({"gone"},), status=410)

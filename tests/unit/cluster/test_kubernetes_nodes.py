"""What the operator learns of nodes where it may not read them, or cannot now."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError
from ddpjob_operator.cluster.kube.objects import NodeObject
from ddpjob_operator.cluster.kubernetes_nodes import AGAIN_SECONDS, KubernetesNodes

from .manifests import a_node

FORBIDDEN = ApiError(403, "Forbidden", "nodes is forbidden")
BUSY = ApiError(429, "TooManyRequests", "busy")


class Answering(ApiClient):
    """An API server whose answers about nodes are known beforehand, and which counts what it was asked."""

    def __init__(self, **answers: NodeObject | ApiError | None) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def get(self, *where: Any) -> Any:
        name = where[-1]
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, ApiError):
            raise answer
        return answer


def problems(nodes: KubernetesNodes, *names: str) -> dict[str, str]:
    return asyncio.run(nodes.problems(names))


def test_each_node_is_asked_and_one_that_is_well_or_gone_says_so() -> None:
    api = Answering(a=a_node(), b=None, c=a_node(ready="Unknown", message="silent"))
    assert problems(KubernetesNodes(api), "a", "b", "c") == {"a": "", "b": "is gone", "c": "is not ready: silent"}
    assert api.asked == ["a", "b", "c"]


def test_nothing_is_said_of_a_node_that_cannot_be_read_now() -> None:
    api = Answering(a=BUSY, b=None)
    nodes = KubernetesNodes(api)
    assert problems(nodes, "a", "b") == {"b": "is gone"}
    api.answers["a"] = a_node()
    assert problems(nodes, "a") == {"a": ""}, "it is asked again"


def test_an_operator_that_may_not_read_nodes_asks_once_in_a_while() -> None:
    api = Answering(a=FORBIDDEN)
    nodes = KubernetesNodes(api)
    assert [problems(nodes, "a"), problems(nodes, "a")] == [{}, {}]
    assert api.asked == ["a"]


def test_an_operator_that_may_read_nodes_again_does_without_a_restart(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    api = Answering(a=FORBIDDEN)
    nodes, now = KubernetesNodes(api), time.monotonic()
    assert problems(nodes, "a") == {}
    api.answers["a"] = None
    monkeypatch.setattr(time, "monotonic", lambda: now + AGAIN_SECONDS / 2)
    assert (problems(nodes, "a"), domains(nodes, "a")) == ({}, {"a": ""})
    monkeypatch.setattr(time, "monotonic", lambda: now + AGAIN_SECONDS + 1)
    assert problems(nodes, "a") == {"a": "is gone"}
    monkeypatch.setattr(time, "monotonic", lambda: now + AGAIN_SECONDS + 2)
    assert problems(nodes, "a") == {"a": "is gone"}
    api.answers["a"] = FORBIDDEN
    with caplog.at_level("INFO"):
        problems(nodes, "a")
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "this operator is not allowed to read Kubernetes nodes"
    ], "it is news again"


def domains(nodes: KubernetesNodes, *names: str) -> dict[str, str]:
    return asyncio.run(nodes.domains(names, "example.com/rack"))


def in_rack(rack: str) -> NodeObject:
    return msgspec.convert({"metadata": {"name": "a", "labels": {"example.com/rack": rack, "zone": "z"}}}, NodeObject)


def test_a_node_is_where_its_label_says_and_one_without_it_or_that_is_gone_is_nowhere() -> None:
    api = Answering(a=in_rack("rack-1"), b=a_node(), c=None, d=BUSY)
    assert domains(KubernetesNodes(api), "a", "b", "c", "d") == {"a": "rack-1", "b": "", "c": ""}, "d is asked again"


def test_for_an_operator_that_may_not_read_nodes_each_is_nowhere_and_it_asks_once() -> None:
    api = Answering(a=FORBIDDEN)
    nodes = KubernetesNodes(api)
    assert [domains(nodes, "a"), domains(nodes, "a", "b")] == [{"a": ""}, {"a": "", "b": ""}]
    assert api.asked == ["a"]

"""What the operator learns of nodes where it may not read them, or cannot now."""

import asyncio
from typing import Any

from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError
from ddpjob_operator.cluster.kube.objects import NodeObject
from ddpjob_operator.cluster.nodes import Nodes

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


def problems(nodes: Nodes, *names: str) -> dict[str, str]:
    return asyncio.run(nodes.problems(names))


def test_each_node_is_asked_and_one_that_is_well_or_gone_says_so() -> None:
    api = Answering(a=a_node(), b=None, c=a_node(ready="Unknown", message="silent"))
    assert problems(Nodes(api), "a", "b", "c") == {"a": "", "b": "is gone", "c": "is not ready: silent"}
    assert api.asked == ["a", "b", "c"]


def test_nothing_is_said_of_a_node_that_cannot_be_read_now() -> None:
    api = Answering(a=BUSY, b=None)
    nodes = Nodes(api)
    assert problems(nodes, "a", "b") == {"b": "is gone"}
    api.answers["a"] = a_node()
    assert problems(nodes, "a") == {"a": ""}, "it is asked again"


def test_an_operator_that_may_not_read_nodes_asks_once() -> None:
    api = Answering(a=FORBIDDEN)
    nodes = Nodes(api)
    assert [problems(nodes, "a"), problems(nodes, "a")] == [{}, {}]
    assert api.asked == ["a"]

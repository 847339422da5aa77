"""What autoscalers say about a pod that lacks a node."""

import asyncio
from typing import Any

import pytest
from ddpjob_operator.cluster.autoscalers import adds_a_node
from ddpjob_operator.cluster.kube.api_client import EVENTS, ApiClient, ApiError
from ddpjob_operator.cluster.kube.objects import EventObject, ObjectMeta


class Telling(ApiClient):
    """An API server that has events for these reasons, or an error."""

    def __init__(self, *reasons: str, error: ApiError | None = None) -> None:
        self.reasons, self.error = reasons, error
        self.asked: list[Any] = []

    async def list(self, *what: Any, **more: Any) -> Any:
        self.asked.append((*what, more))
        if self.error is not None:
            raise self.error
        return [EventObject(ObjectMeta(), reason=reason) for reason in self.reasons], 1


def adds(api: ApiClient) -> bool:
    return asyncio.run(adds_a_node(api, "team", "pod-uid"))


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ((), False),
        (("FailedScheduling", "NotTriggerScaleUp"), False),
        (("FailedScheduling", "TriggeredScaleUp"), True),
        (("FailedScheduling", "Nominated"), True),
    ],
    ids=["nobody says anything", "it would not help", "the Cluster Autoscaler does", "Karpenter does"],
)
def test_whether_a_node_is_added(reasons: tuple[str, ...], expected: bool) -> None:  # noqa: FBT001  A table.
    api = Telling(*reasons)
    assert adds(api) is expected
    assert api.asked == [(EVENTS, "team", {"fields": "involvedObject.uid=pod-uid"})]


def test_an_operator_that_may_not_list_events_takes_it_for_no() -> None:
    assert not adds(Telling("TriggeredScaleUp", error=ApiError(403, "Forbidden", "events is forbidden")))


def test_no_answer_is_none() -> None:
    with pytest.raises(ApiError, match="no answer"):
        adds(Telling(error=ApiError(0, "NoAnswer", "no answer")))

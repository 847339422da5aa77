"""What autoscalers say about a pod that lacks a node, and an operator that may not hear it."""

import asyncio
import time
from typing import Any

import pytest
from ddpjob_operator.cluster.autoscalers import Autoscalers
from ddpjob_operator.cluster.kube.api_client import EVENTS, ApiClient, ApiError
from ddpjob_operator.cluster.kube.forbidden import AGAIN_SECONDS
from ddpjob_operator.cluster.kube.objects import EventObject, ObjectMeta

FORBIDDEN = ApiError(403, "Forbidden", "events is forbidden")


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


def adds(autoscalers: Autoscalers, namespace: str = "team") -> bool:
    return asyncio.run(autoscalers.add_a_node_for(namespace, "pod-uid"))


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
    assert adds(Autoscalers(api)) is expected
    assert api.asked == [(EVENTS, "team", {"fields": "involvedObject.uid=pod-uid"})]


def test_an_operator_that_may_not_list_events_asks_once_in_a_while_and_takes_it_for_no() -> None:
    api = Telling(error=FORBIDDEN)
    autoscalers = Autoscalers(api)
    assert [adds(autoscalers), adds(autoscalers)] == [False, False]
    assert len(api.asked) == 1


def test_a_namespace_whose_events_may_not_be_listed_says_nothing_of_others(caplog: pytest.LogCaptureFixture) -> None:
    api = Telling("TriggeredScaleUp", error=FORBIDDEN)
    autoscalers = Autoscalers(api)
    with caplog.at_level("INFO"):
        assert not adds(autoscalers)
    assert caplog.messages[0].startswith("namespace team: this operator may not list events")
    api.error = None
    assert (adds(autoscalers), adds(autoscalers, "another")) == (False, True)


def test_an_operator_that_may_list_events_again_does_without_a_restart(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    api, now = Telling("TriggeredScaleUp"), time.monotonic()
    autoscalers = Autoscalers(api)
    with caplog.at_level("INFO"):
        for minutes, error, told in ((0, FORBIDDEN, 1), (1, FORBIDDEN, 1), (2, None, 1), (3, FORBIDDEN, 2)):
            monkeypatch.setattr(time, "monotonic", lambda seconds=minutes * (AGAIN_SECONDS + 1): now + seconds)
            api.error = error
            assert (adds(autoscalers), len(caplog.messages)) == (error is None, told)


def test_no_answer_is_none() -> None:
    autoscalers = Autoscalers(Telling(error=ApiError(0, "NoAnswer", "no answer")))
    with pytest.raises(ApiError, match="no answer"):
        adds(autoscalers)

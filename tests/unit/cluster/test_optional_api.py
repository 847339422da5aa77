"""Where PodGroups can be made, as an example of what not every cluster has, or lets the operator make."""

import asyncio
import logging
from typing import Any

import pytest
from ddpjob_operator.cluster.kube.api_client import ApiClient, ApiError
from ddpjob_operator.cluster.optional_api import OptionalApi
from ddpjob_operator.engine import POD_GROUP, WORKLOAD, Feature

BOTH = frozenset({WORKLOAD.plural, POD_GROUP.plural})
ALL = ("get", "list", "watch", "create", "delete")
NO_API = "the cluster does not serve workloads (scheduling.k8s.io/v1beta1)"


class Server(ApiClient):
    """An API server that serves these kinds, with these verbs for them."""

    def __init__(self, served: frozenset[str] = BOTH, verbs: tuple[str, ...] = ALL) -> None:
        self.kinds, self.verbs = served, verbs
        self.error: ApiError | None = None

    async def served(self, path: str) -> frozenset[str]:
        if self.error is not None:
            raise self.error
        return self.kinds if path == WORKLOAD.path else frozenset()

    async def rules(self, _: str) -> tuple[list[dict[str, Any]], bool]:
        return [{"verbs": [*self.verbs], "apiGroups": ["scheduling.k8s.io"], "resources": [*self.kinds]}], False

    async def allowed(self, attributes: dict[str, Any]) -> bool:
        return attributes["verb"] in self.verbs


def granted(api: Server, namespace: str | None = None) -> bool:
    access = OptionalApi(api, Feature.POD_GROUPS)
    asyncio.run(access.check(namespace))
    return access.granted("team")


@pytest.mark.parametrize("namespace", [None, "team"])
@pytest.mark.parametrize(
    ("api", "expected"),
    [
        pytest.param(Server(), True, id="both are served and may be made"),
        pytest.param(Server(frozenset()), False, id="there is no such API"),
        pytest.param(Server(frozenset({"priorityclasses"})), False, id="an older API has the same version"),
        pytest.param(Server(frozenset({"workloads"})), False, id="half of it is served"),
        pytest.param(Server(verbs=ALL[:-1]), False, id="a right is missing"),
    ],
)
def test_where_pod_groups_can_be_made(api: Server, expected: bool, namespace: str | None) -> None:  # noqa: FBT001  A table.
    assert granted(api, namespace) is expected


def test_what_is_granted_in_one_namespace_is_not_in_another() -> None:
    assert not granted(Server(), "another")


def test_nothing_is_granted_before_anybody_has_looked() -> None:
    assert not OptionalApi(Server(), Feature.POD_GROUPS).granted("team")


def test_discovery_that_is_forbidden_means_no_and_no_answer_means_nothing() -> None:
    api = Server()
    access = OptionalApi(api, Feature.POD_GROUPS)
    asyncio.run(access.check(None))
    api.error = ApiError(0, "NoAnswer", "no answer")
    with pytest.raises(ApiError):
        asyncio.run(access.check(None))
    assert access.granted("team")
    api.error = ApiError(403, "Forbidden", "nobody may")
    asyncio.run(access.check(None))
    assert not access.granted("team")


def test_the_log_says_why_not_and_says_it_again_when_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    api = Server(frozenset())
    access = OptionalApi(api, Feature.POD_GROUPS)
    with caplog.at_level(logging.INFO):
        for kinds, verbs in ((frozenset(), ALL), (frozenset(), ALL), (BOTH, ()), (BOTH, ALL)):
            api.kinds, api.verbs = frozenset(kinds), verbs
            asyncio.run(access.check(None))
    assert caplog.messages == [
        f"PodGroups (all namespaces): {NO_API}",
        (
            "PodGroups (all namespaces): the operator is not allowed to get workloads.scheduling.k8s.io in all "
            "namespaces"
        ),
        "PodGroups (all namespaces): the cluster's scheduler places gangs",
    ]

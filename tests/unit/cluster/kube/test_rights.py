"""What the operator asks at its start whether it may do it, and with how many requests."""

import asyncio
from typing import Any

import pytest
from ddpjob_operator.cluster.kube.api_client import ApiClient
from ddpjob_operator.cluster.kube.rights import (
    FEATURE_RIGHTS,
    RIGHTS,
    missing_everywhere,
    missing_for_lease,
    missing_in,
    missing_of,
)
from ddpjob_operator.engine import Feature

Rule = tuple[str, set[str], set[str]]
"""Resource, names (none: all) and verbs."""


class Granting(ApiClient):
    """An API server with these rules and no others; those that a webhook knows no review of rules tells."""

    def __init__(self, *rules: Rule, webhook: tuple[Rule, ...] = ()) -> None:
        self._rules, self._webhook = rules, webhook
        self.asked = 0

    async def rules(self, namespace: str) -> tuple[list[dict[str, Any]], bool]:
        """As RBAC tells, of one namespace."""
        assert namespace
        self.asked += 1
        rules = [
            {"verbs": [*verbs], "apiGroups": ["*"], "resources": [resource], "resourceNames": [*names]}
            for resource, names, verbs in self._rules
        ]
        return rules, bool(self._webhook)

    async def allowed(self, attributes: dict[str, Any]) -> bool:
        """As RBAC and the webhook decide."""
        self.asked += 1
        kind = f"{attributes['resource']}/{attributes['subresource']}".rstrip("/")
        return any(
            resource in {kind, "*"} and attributes["verb"] in verbs and (not names or attributes.get("name") in names)
            for resource, names, verbs in (*self._rules, *self._webhook)
        )


ALL = {"get", "list", "watch", "create", "update", "patch", "delete"}
EVERY: Rule = ("*", set(), ALL)
KINDS = ("ddpjobs", "ddpjobs/status", "pods", "services", "events", "networkpolicies")
MAKE: Rule = ("leases", set(), {"create"})
SECRETS: Rule = ("secrets", set(), ALL)


def a_rule(resource: str) -> Rule:
    return resource, set(), ALL


def test_rights_to_its_own_lease_are_enough() -> None:
    api = Granting(MAKE, ("leases", {"ours"}, {"get", "update"}))
    assert asyncio.run(missing_for_lease(api, "system", "ours")) == []


def test_rights_to_another_lease_are_none_and_are_named() -> None:
    api = Granting(MAKE, ("leases", {"theirs"}, {"get", "update"}))
    of = "leases.coordination.k8s.io ours in namespace system"
    assert asyncio.run(missing_for_lease(api, "system", "ours")) == [f"get {of}", f"update {of}"]


@pytest.mark.parametrize("rules", [(EVERY,), (*map(a_rule, KINDS), SECRETS)], ids=["an admin's", "one for each"])
def test_all_rights_in_a_namespace_take_one_request(rules: tuple[Rule, ...]) -> None:
    api = Granting(*rules)
    assert asyncio.run(missing_in(api, "team"))[0] == []
    assert api.asked == 1


def test_what_is_lacking_in_a_namespace_is_named() -> None:
    assert asyncio.run(missing_in(Granting(*map(a_rule, KINDS)), "team"))[0] == ["create secrets in namespace team"]


def test_a_role_of_before_there_were_marks_is_enough_to_begin_with() -> None:
    api = Granting(*map(a_rule, KINDS[1:]), SECRETS, ("ddpjobs", set(), {"get", "list", "watch", "delete"}))
    assert asyncio.run(missing_in(api, "team"))[0] == []
    assert asyncio.run(missing_everywhere(api, selecting=False)) == []


def test_where_a_webhook_decides_too_it_is_asked_for_what_the_rules_lack() -> None:
    api = Granting(*map(a_rule, KINDS), webhook=(SECRETS,))
    assert asyncio.run(missing_in(api, "team"))[0] == []
    assert api.asked == 2


def test_rights_in_all_namespaces_are_asked_for_one_by_one() -> None:
    api = Granting(EVERY)
    assert asyncio.run(missing_everywhere(api, selecting=False)) == []
    assert api.asked == sum(map(len, RIGHTS.values()))


def test_the_rights_of_a_feature_take_one_request_in_a_namespace_and_one_each_in_all() -> None:
    api, rights = Granting(EVERY), FEATURE_RIGHTS[Feature.POD_GROUPS]
    assert asyncio.run(missing_of(api, rights, "team")) == []
    assert api.asked == 1
    assert asyncio.run(missing_of(api, rights, None)) == []
    assert api.asked == 1 + sum(map(len, rights.values()))


def test_a_selector_takes_the_right_to_watch_namespaces() -> None:
    api = Granting(*map(a_rule, KINDS), SECRETS)
    assert asyncio.run(missing_everywhere(api, selecting=True)) == [
        "list namespaces in all namespaces",
        "watch namespaces in all namespaces",
    ]

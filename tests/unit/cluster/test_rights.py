"""What the operator asks at its start whether it may do it."""

import asyncio
from typing import Any

from ddpjob_operator.cluster.api import Api
from ddpjob_operator.cluster.rights import missing_rights


class Granting(Api):
    """An API server with these rules and no others: resource, names (none: all) and verbs."""

    def __init__(self, *rules: tuple[str, set[str], set[str]]) -> None:
        self._rules = rules

    async def allowed(self, attributes: dict[str, Any]) -> bool:
        """As RBAC decides."""
        return any(
            attributes["resource"] == resource
            and attributes["verb"] in verbs
            and (not names or attributes.get("name") in names)
            for resource, names, verbs in self._rules
        )


ALL = {"get", "list", "watch", "create", "update", "patch", "delete"}
KINDS = ("ddpjobs", "pods", "services", "events", "networkpolicies", "secrets")
REST = [(resource, set[str](), ALL) for resource in KINDS]
MAKE = ("leases", set[str](), {"create"})


def test_rights_to_its_own_lease_are_enough() -> None:
    api = Granting(*REST, MAKE, ("leases", {"ours"}, {"get", "update"}))
    assert asyncio.run(missing_rights(api, [], ("system", "ours"))) == []


def test_rights_to_another_lease_are_none_and_are_named() -> None:
    api = Granting(*REST, MAKE, ("leases", {"theirs"}, {"get", "update"}))
    of = "leases.coordination.k8s.io ours in namespace system"
    assert asyncio.run(missing_rights(api, ["team"], ("system", "ours"))) == [f"get {of}", f"update {of}"]


def test_without_an_election_no_right_to_leases_is_asked_for() -> None:
    assert asyncio.run(missing_rights(Granting(*REST), ["team"], None)) == []

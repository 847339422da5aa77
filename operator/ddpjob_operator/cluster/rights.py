"""What the operator must be allowed to do; the chart grants exactly this."""

import asyncio
from dataclasses import dataclass

from ddpjob_operator.api.contract import GROUP

from .api import Api

READ = ("get", "list", "watch")

RIGHTS: dict[tuple[str, str], tuple[str, ...]] = {
    (GROUP, "ddpjobs"): (*READ, "delete"),
    (GROUP, "ddpjobs/status"): ("patch",),
    ("", "pods"): (*READ, "create", "patch", "delete"),
    ("", "services"): (*READ, "create"),
    ("", "secrets"): ("create",),
    ("", "events"): ("create", "patch"),
    ("networking.k8s.io", "networkpolicies"): (*READ, "create", "delete"),
}
"""In every namespace that it looks after: API group and resource, and the verbs."""

OWNER_RIGHTS = {(GROUP, "ddpjobs/finalizers"): ("update",)}
"""There too, and in no request of ours: some clusters demand it of whoever makes what belongs to a job."""

LEASE_RIGHTS = {("coordination.k8s.io", "leases"): ("get", "create", "update")}
"""With leader election, on its own Lease alone; but RBAC cannot bind the right to create to a name."""

NODE_RIGHTS = {("", "nodes"): ("get",)}
"""For the whole cluster, and only where the chart's `rbac.nodes` grants it: nothing depends on it."""


@dataclass(frozen=True)
class _Right:
    group: str
    resource: str
    verb: str
    namespace: str
    """Empty: all."""
    name: str = ""
    """Of the one object that it is about; empty: all."""

    @property
    def attributes(self) -> dict[str, str]:
        """As the API server is asked for it."""
        resource, _, subresource = self.resource.partition("/")
        what = {"group": self.group, "resource": resource, "subresource": subresource, "name": self.name}
        return {**what, "verb": self.verb, "namespace": self.namespace}

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        what = f"{kind} {self.name}" if self.name else kind
        return f"{self.verb} {what} in {f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"


async def missing_rights(api: Api, namespaces: list[str], lease: tuple[str, str] | None) -> list[str]:
    """Rights that we lack, each in words, by asking the API server itself.

    `lease` is namespace and name of our Lease, where there is an election.
    """
    asked = [
        _Right(*what, verb, namespace)
        for namespace in namespaces or [""]
        for what, verbs in RIGHTS.items()
        for verb in verbs
    ]
    if lease is not None:
        asked += [_Right(*what, verb, *lease) for what, verbs in LEASE_RIGHTS.items() for verb in verbs]
    answers = await asyncio.gather(*(api.allowed(right.attributes) for right in asked))
    return [str(right) for right, may in zip(asked, answers, strict=True) if not may]

"""What the operator must be allowed to do; the chart grants exactly this."""

import asyncio

from ddpjob_operator.api.contract import GROUP

from .api import Api

READ = ("get", "list", "watch")

RIGHTS: dict[tuple[str, str], tuple[str, ...]] = {
    (GROUP, "ddpjobs"): (*READ, "delete"),
    (GROUP, "ddpjobs/status"): ("patch",),
    ("", "pods"): (*READ, "create", "patch", "delete"),
    ("", "services"): (*READ, "create"),
    ("", "events"): ("create", "patch"),
    ("networking.k8s.io", "networkpolicies"): (*READ, "create", "delete"),
}
"""In every namespace that it looks after: API group and resource, and the verbs."""

LEASE_RIGHTS = {("coordination.k8s.io", "leases"): ("get", "create", "update")}
"""In its own namespace, with leader election."""

NODE_RIGHTS = {("", "nodes"): ("get",)}
"""For the whole cluster, and only where the chart's `rbac.nodes` grants it: nothing depends on it."""


async def missing_rights(api: Api, namespaces: list[str], lease_namespace: str | None) -> list[str]:
    """Rights that we lack, each in words, by asking the API server itself."""
    asked = [
        (group, resource, verb, namespace)
        for namespace in namespaces or [""]
        for (group, resource), verbs in RIGHTS.items()
        for verb in verbs
    ]
    if lease_namespace is not None:
        asked += [
            (group, resource, verb, lease_namespace)
            for (group, resource), verbs in LEASE_RIGHTS.items()
            for verb in verbs
        ]
    answers = await asyncio.gather(*(_may(api, *question) for question in asked))
    return [_told(*question) for question, may in zip(asked, answers, strict=True) if not may]


async def _may(api: Api, group: str, resource: str, verb: str, namespace: str) -> bool:
    name, _, subresource = resource.partition("/")
    return await api.allowed(
        {"group": group, "resource": name, "subresource": subresource, "verb": verb, "namespace": namespace}
    )


def _told(group: str, resource: str, verb: str, namespace: str) -> str:
    kind = f"{resource}.{group}" if group else resource
    return f"{verb} {kind} in " + (f"namespace {namespace}" if namespace else "all namespaces")

"""The rights that the operator needs. The chart grants exactly these rights."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ddpjob_operator.api.contract import GROUP
from ddpjob_operator.engine import KUEUE_API, OWNED, READ, Feature

from .api_client import ApiClient

Rights = Mapping[tuple[str, str], tuple[str, ...]]
"""RBAC verbs, by API group and resource."""


def of_owned(feature: Feature | None) -> Rights:
    """Returns the rights to a feature's kinds of objects; None means the kinds that every cluster has."""
    return {resource: verbs for kind in OWNED if kind.feature is feature for resource, verbs in kind.rights.items()}


RIGHTS: Rights = {
    (GROUP, "ddpjobs"): (*READ, "delete"),
    (GROUP, "ddpjobs/status"): ("patch",),
    ("", "pods"): (*READ, "create", "patch", "delete"),
    ("", "events"): ("create", "patch"),
    **of_owned(None),
}
"""The rights that the operator needs in every namespace whose jobs it runs."""

MARK_RIGHTS = {(GROUP, "ddpjobs"): ("patch",)}
"""Rights in the same namespaces, for marking finished jobs. If the operator has an older role without these rights,
everything else works."""

OWNER_RIGHTS = {(GROUP, "ddpjobs/finalizers"): ("update",)}
"""Rights in the same namespaces, which the operator never uses directly. But some clusters demand them from whoever
creates objects that belong to a job."""

FEATURE_RIGHTS: Mapping[Feature, Rights] = {feature: of_owned(feature) for feature in Feature}
"""Rights in the same namespaces for the objects of optional features. They are needed only for jobs that use these
features."""

KUEUE_CLUSTER_RIGHTS = {
    (KUEUE_API.partition("/")[0], "resourceflavors"): ("get",),
    (KUEUE_API.partition("/")[0], "workloadpriorityclasses"): ("get",),
    ("scheduling.k8s.io", "priorityclasses"): ("get",),
}
"""Cluster-wide rights for jobs that name one of Kueue's queues: to read flavors and priority classes."""

EVENT_RIGHTS = {("", "events"): ("list",)}
"""Rights in the namespaces of jobs, for reading the events of autoscalers. Without these rights, a gang gives way to
others even while an autoscaler is adding nodes for it."""

LEASE_RIGHTS = {("coordination.k8s.io", "leases"): ("get", "create", "update")}
"""Rights to the operator's own Lease, for leader election. (RBAC cannot restrict the verb `create` to a name.)"""

DEFAULTS_RIGHTS = {("", "configmaps"): ("list", "watch"), ("", "events"): ("create", "patch")}
"""Rights in the operator's own namespace: to follow the ConfigMap with the organisation's defaults, and no other, and
to write events about it."""

LABELS_RIGHTS = {("", "namespaces"): ("get",)}
"""Rights in the namespaces of jobs, for defaults that are chosen by the labels of a namespace."""

NODE_RIGHTS = {("", "nodes"): ("get",)}
"""Optional cluster-wide rights, granted by the chart's `rbac.nodes`."""

METRICS_RIGHTS = {
    ("authentication.k8s.io", "tokenreviews"): ("create",),
    ("authorization.k8s.io", "subjectaccessreviews"): ("create",),
}
"""Cluster-wide rights for `--metrics-auth`, to ask the API server who may read the metrics."""

NAMESPACE_RIGHTS = {("", "namespaces"): ("list", "watch")}
"""Cluster-wide rights for `--namespace-selector`."""


@dataclass(frozen=True)
class _Right:
    group: str
    resource: str
    verb: str
    namespace: str
    """The namespace; empty: all namespaces."""
    name: str = ""
    """The name of the only object that the right applies to; empty: all objects."""

    @property
    def attributes(self) -> dict[str, str]:
        """The right as the `resourceAttributes` of a SelfSubjectAccessReview."""
        resource, _, subresource = self.resource.partition("/")
        target = {"group": self.group, "resource": resource, "subresource": subresource, "name": self.name}
        return {**target, "verb": self.verb, "namespace": self.namespace}

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        target = f"{kind} {self.name}" if self.name else kind
        return f"{self.verb} {target} in {f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"


class _Rule(msgspec.Struct, rename="camel"):
    """An RBAC rule, as in the status of a SelfSubjectRulesReview."""

    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []

    def allows(self, right: _Right) -> bool:
        """Whether the rule grants a right."""
        _, slash, subresource = right.resource.partition("/")
        kinds = {"*", right.resource, *([f"*/{subresource}"] if slash else [])}
        return bool(
            {"*", right.verb} & set(self.verbs)
            and {"*", right.group} & set(self.api_groups)
            and kinds & set(self.resources)
            and (not self.resource_names or right.name in self.resource_names)
        )


async def missing_everywhere(api: ApiClient, *, selecting: bool) -> list[str]:
    """Lists the cluster-wide rights that the operator lacks, as texts.

    `selecting` is true if a selector chooses the namespaces. Each right is checked by a separate request, because a
    SelfSubjectRulesReview never covers all namespaces.
    """
    needed = _rights(RIGHTS, "")
    if selecting:
        needed += _rights(NAMESPACE_RIGHTS, "")
    return [str(right) for right in needed if not await api.allowed(right.attributes)]


async def missing_in(api: ApiClient, namespace: str) -> tuple[list[str], bool]:
    """Lists the rights that the operator lacks in a namespace. Also returns whether it may read the namespace."""
    rules, incomplete = await _rules(api, namespace)
    missing = await _missing(api, rules, _rights(RIGHTS, namespace), incomplete=incomplete)
    get_namespace = _Right("", "namespaces", "get", namespace, namespace)
    return missing, any(rule.allows(get_namespace) for rule in rules)


async def missing_of(api: ApiClient, wanted: Rights, namespace: str | None) -> list[str]:
    """Lists the rights in `wanted` that the operator lacks in a namespace or, with None, in all, as texts."""
    needed = _rights(wanted, namespace or "")
    if namespace is None:
        return [str(right) for right in needed if not await api.allowed(right.attributes)]
    rules, incomplete = await _rules(api, namespace)
    return await _missing(api, rules, needed, incomplete=incomplete)


async def missing_for_lease(api: ApiClient, namespace: str, name: str) -> list[str]:
    """Lists the rights to its own Lease that the operator lacks, as texts."""
    rules, incomplete = await _rules(api, namespace)
    return await _missing(api, rules, _rights(LEASE_RIGHTS, namespace, name), incomplete=incomplete)


async def _rules(api: ApiClient, namespace: str) -> tuple[list[_Rule], bool]:
    rules, incomplete = await api.rules(namespace)
    return [msgspec.convert(rule, _Rule) for rule in rules], incomplete


async def _missing(api: ApiClient, rules: list[_Rule], asked: list[_Right], *, incomplete: bool) -> list[str]:
    """Lists the rights in `asked` that the operator lacks, as texts.

    If the rules are incomplete, for example because an authorization webhook may grant more, each right that they do
    not grant is checked by a separate request.
    """
    not_granted = [right for right in asked if not any(rule.allows(right) for rule in rules)]
    return [str(right) for right in not_granted if not (incomplete and await api.allowed(right.attributes))]


def _rights(rights: Rights, namespace: str, name: str = "") -> list[_Right]:
    return [_Right(*resource, verb, namespace, name) for resource, verbs in rights.items() for verb in verbs]

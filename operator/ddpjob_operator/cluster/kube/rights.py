"""What the operator must be allowed to do; the chart grants exactly this."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ddpjob_operator.api.contract import GROUP
from ddpjob_operator.engine import KUEUE_API, OWNED, READ, Feature

from .api_client import ApiClient

Rights = Mapping[tuple[str, str], tuple[str, ...]]
"""By API group and resource, the verbs."""


def of_owned(feature: Feature | None) -> Rights:
    """Those to the kinds of objects of jobs that belong to a feature, or that every cluster has."""
    return {what: verbs for kind in OWNED if kind.feature is feature for what, verbs in kind.rights.items()}


RIGHTS: Rights = {
    (GROUP, "ddpjobs"): (*READ, "delete"),
    (GROUP, "ddpjobs/status"): ("patch",),
    ("", "pods"): (*READ, "create", "patch", "delete"),
    ("", "events"): ("create", "patch"),
    **of_owned(None),
}
"""In every namespace that it looks after."""

MARK_RIGHTS = {(GROUP, "ddpjobs"): ("patch",)}
"""There too, for marking finished jobs: an operator whose role is older than itself does all else without it."""

OWNER_RIGHTS = {(GROUP, "ddpjobs/finalizers"): ("update",)}
"""There too, though in no request of ours: some clusters demand it for creating what belongs to a job."""

FEATURE_RIGHTS: Mapping[Feature, Rights] = {feature: of_owned(feature) for feature in Feature}
"""There too, where the cluster serves them. Nothing that every job needs depends on these."""

KUEUE_CLUSTER_RIGHTS = {
    (KUEUE_API.partition("/")[0], "resourceflavors"): ("get",),
    (KUEUE_API.partition("/")[0], "workloadpriorityclasses"): ("get",),
    ("scheduling.k8s.io", "priorityclasses"): ("get",),
}
"""For the whole cluster, for the same jobs: what their queues hand out, and who comes first."""

EVENT_RIGHTS = {("", "events"): ("list",)}
"""There too, for what autoscalers say: without it gangs give way to others whether nodes are being added or not."""

LEASE_RIGHTS = {("coordination.k8s.io", "leases"): ("get", "create", "update")}
"""With leader election, only on its own Lease; but RBAC cannot bind the right to create to a name."""

NODE_RIGHTS = {("", "nodes"): ("get",)}
"""For the whole cluster, and only if the chart's `rbac.nodes` grants it: nothing depends on it."""

METRICS_RIGHTS = {
    ("authentication.k8s.io", "tokenreviews"): ("create",),
    ("authorization.k8s.io", "subjectaccessreviews"): ("create",),
}
"""For the whole cluster, if only those may read the metrics whom the API server permits it."""

NAMESPACE_RIGHTS = {("", "namespaces"): ("list", "watch")}
"""For the whole cluster, if a selector chooses the namespaces."""


@dataclass(frozen=True)
class _Right:
    group: str
    resource: str
    verb: str
    namespace: str
    """Empty: all."""
    name: str = ""
    """The name of the one object that it is about; empty: all."""

    @property
    def attributes(self) -> dict[str, str]:
        """The form in which the API server is asked for it."""
        resource, _, subresource = self.resource.partition("/")
        what = {"group": self.group, "resource": resource, "subresource": subresource, "name": self.name}
        return {**what, "verb": self.verb, "namespace": self.namespace}

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        what = f"{kind} {self.name}" if self.name else kind
        return f"{self.verb} {what} in {f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"


class _Rule(msgspec.Struct, rename="camel"):
    """A rule of RBAC, as in a SelfSubjectRulesReview."""

    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []

    def allows(self, right: _Right) -> bool:
        """Whether it grants this."""
        _, slash, subresource = right.resource.partition("/")
        kinds = {"*", right.resource, *([f"*/{subresource}"] if slash else [])}
        return bool(
            {"*", right.verb} & set(self.verbs)
            and {"*", right.group} & set(self.api_groups)
            and kinds & set(self.resources)
            and (not self.resource_names or right.name in self.resource_names)
        )


async def missing_everywhere(api: ApiClient, *, selecting: bool) -> list[str]:
    """Rights that we lack in all namespaces, each in words, checked one by one: no review covers all namespaces."""
    asked = _rights(RIGHTS, "")
    if selecting:
        asked += _rights(NAMESPACE_RIGHTS, "")
    return [str(right) for right in asked if not await api.allowed(right.attributes)]


async def missing_in(api: ApiClient, namespace: str) -> tuple[list[str], bool]:
    """Rights that we lack in this namespace, and whether we may ask if it exists."""
    rules, incomplete = await _rules(api, namespace)
    missing = await _missing(api, rules, _rights(RIGHTS, namespace), incomplete=incomplete)
    seeing = _Right("", "namespaces", "get", namespace, namespace)
    return missing, any(rule.allows(seeing) for rule in rules)


async def missing_of(api: ApiClient, wanted: Rights, namespace: str | None) -> list[str]:
    """Those of these rights that we lack in a namespace, or in all of them, each in words."""
    asked = _rights(wanted, namespace or "")
    if namespace is None:
        return [str(right) for right in asked if not await api.allowed(right.attributes)]
    rules, incomplete = await _rules(api, namespace)
    return await _missing(api, rules, asked, incomplete=incomplete)


async def missing_for_lease(api: ApiClient, namespace: str, name: str) -> list[str]:
    """Rights that we lack to our own Lease."""
    rules, incomplete = await _rules(api, namespace)
    return await _missing(api, rules, _rights(LEASE_RIGHTS, namespace, name), incomplete=incomplete)


async def _rules(api: ApiClient, namespace: str) -> tuple[list[_Rule], bool]:
    rules, incomplete = await api.rules(namespace)
    return [msgspec.convert(rule, _Rule) for rule in rules], incomplete


async def _missing(api: ApiClient, rules: list[_Rule], asked: list[_Right], *, incomplete: bool) -> list[str]:
    """If there may be more than these rules, since a webhook may decide too, what they lack is asked for."""
    lacked = [right for right in asked if not any(rule.allows(right) for rule in rules)]
    return [str(right) for right in lacked if not (incomplete and await api.allowed(right.attributes))]


def _rights(rights: Rights, namespace: str, name: str = "") -> list[_Right]:
    return [_Right(*what, verb, namespace, name) for what, verbs in rights.items() for verb in verbs]

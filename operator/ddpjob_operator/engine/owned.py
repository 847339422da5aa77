"""The kinds of objects that a job owns besides its pods, one row per kind.

The rows define how objects are created, recognised, watched, kept and deleted, and which rights the operator needs. A
new kind needs a row here, its manifest in `manifests/`, and a policy that creates its objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ddpjob_operator.api import DDPJob, ownership
from ddpjob_operator.api.ownership import Named

SCHEDULING_API = "scheduling.k8s.io/v1beta1"
VOLCANO_API = "scheduling.volcano.sh/v1beta1"
KUEUE_API = "kueue.x-k8s.io/v1beta2"

READ = ("get", "list", "watch")
PLAIN = (*READ, "create", "delete")


class Feature(StrEnum):
    """Features whose kinds of objects a cluster may lack, or may forbid the operator to create."""

    POD_GROUPS = "PodGroups"
    VOLCANO = "Volcano"
    KUEUE = "Kueue"
    DISRUPTION_BUDGETS = "PodDisruptionBudgets"


@dataclass(frozen=True, slots=True)
class Effect:
    """Describes what happens on clusters where a feature is available, and where it is missing."""

    available: str
    missing: str


EFFECTS: Mapping[Feature, Effect] = {
    Feature.POD_GROUPS: Effect("the cluster's scheduler places gangs", "gangs are placed pod by pod"),
    Feature.VOLCANO: Effect(
        "Volcano places gangs whose pods name it as their scheduler",
        "gangs that name Volcano as their scheduler are placed pod by pod",
    ),
    Feature.KUEUE: Effect("Kueue queues admit the jobs that name them", "jobs that name a Kueue queue do not start"),
    Feature.DISRUPTION_BUDGETS: Effect(
        "drains wait for the checkpoints of jobs that ask for it",
        "pods can be evicted at any time, whatever their job asks for",
    ),
}


@dataclass(frozen=True, slots=True)
class OwnedKind:
    """A kind of object that belongs to jobs."""

    api_version: str
    kind: str
    plural: str
    named: Named | None
    """How names and labels show which job an object of this kind belongs to. None: the operator never reads them."""
    verbs: tuple[str, ...] = PLAIN
    """The RBAC verbs that the operator needs for objects of this kind."""
    status_verbs: tuple[str, ...] = ()
    """The RBAC verbs that the operator needs for their status."""
    feature: Feature | None = None
    """The feature that the kind is a part of. None: every cluster has the kind, and no job can run without it."""
    first: bool = False
    """Whether objects of this kind are created before a job's other objects, which refer to them."""

    @property
    def group(self) -> str:
        """The kind's API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def path(self) -> str:
        """The path of the kind's API on the API server, without the resource."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}"

    @property
    def type_meta(self) -> dict[str, str]:
        """The fields `apiVersion` and `kind` of a manifest."""
        return {"apiVersion": self.api_version, "kind": self.kind}

    @property
    def rights(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """The RBAC verbs by API group and resource."""
        status = {(self.group, f"{self.plural}/status"): self.status_verbs} if self.status_verbs else {}
        return {(self.group, self.plural): self.verbs, **status}


# These two kinds do not need the verb "delete", because the garbage collector deletes their objects with the job.
SERVICE = OwnedKind("v1", "Service", "services", ownership.beside, (*READ, "create"))
SECRET = OwnedKind("v1", "Secret", "secrets", None, ("create",))
NETWORK_POLICY = OwnedKind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", ownership.beside)
DISRUPTION_BUDGET = OwnedKind(
    "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", ownership.beside, feature=Feature.DISRUPTION_BUDGETS
)
WORKLOAD = OwnedKind(SCHEDULING_API, "Workload", "workloads", ownership.group, feature=Feature.POD_GROUPS, first=True)
POD_GROUP = OwnedKind(SCHEDULING_API, "PodGroup", "podgroups", ownership.group, feature=Feature.POD_GROUPS)
VOLCANO_GROUP = OwnedKind(VOLCANO_API, "PodGroup", "podgroups", ownership.group, feature=Feature.VOLCANO)
KUEUE_WORKLOAD = OwnedKind(
    KUEUE_API, "Workload", "workloads", ownership.in_queue, (*PLAIN, "patch"), ("patch",), feature=Feature.KUEUE
)

VOLCANO = "volcano"
"""The `schedulerName` of pods that Volcano schedules."""

OWNED = (
    NETWORK_POLICY,
    SERVICE,
    SECRET,
    DISRUPTION_BUDGET,
    WORKLOAD,
    POD_GROUP,
    VOLCANO_GROUP,
    KUEUE_WORKLOAD,
)


def group_kind(job: DDPJob) -> OwnedKind:
    """Returns the kind of PodGroup that the scheduler of a job's pods knows."""
    return VOLCANO_GROUP if job.spec.template["spec"].get("schedulerName") == VOLCANO else POD_GROUP

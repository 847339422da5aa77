"""Creates and deletes the objects that a job needs besides its pods, such as its Service, while it has pods.

The disruption budget and the Kueue Workload follow other rules, in `drains.py` and `queue.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ddpjob_operator.api import DDPJob, NetworkPolicy
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.decision import Action, Create, Delete
from ddpjob_operator.engine.manifests.children import build_network_policy, build_service
from ddpjob_operator.engine.manifests.pod_groups import build_pod_group, build_workload
from ddpjob_operator.engine.owned import (
    NETWORK_POLICY,
    POD_GROUP,
    SERVICE,
    VOLCANO_GROUP,
    WORKLOAD,
    OwnedKind,
    group_kind,
)
from ddpjob_operator.engine.snapshot import Manifest, PodGroup
from ddpjob_operator.engine.view import View


@dataclass(frozen=True, slots=True)
class _Beside:
    """How an object of some kind is named and built.

    name   returns the name of the object that the job should have; None if it should have none
    build  returns the object's manifest
    """

    name: Callable[[DDPJob], str | None]
    build: Callable[[DDPJob, View], Manifest]


def _policy_name(job: DDPJob) -> str | None:
    return None if job.status.network.policy in {None, NetworkPolicy.DISABLED} else name_beside(job.ref)


def _group_name(kind: OwnedKind) -> Callable[[DDPJob], str | None]:
    """Returns the name of the present attempt's PodGroup and Workload, for jobs whose scheduler knows this kind.

    Each attempt gets a new PodGroup for three reasons: all fields except minCount are immutable; a group reports only
    once why it is waiting; and pods that a former attempt left on dead Kubernetes nodes would count as placed.
    """
    return lambda job: job.status.pod_group if group_kind(job) is kind else None


# NetworkPolicies come first, so that no pod is ever without protection.
BESIDE: Mapping[OwnedKind, _Beside] = {
    NETWORK_POLICY: _Beside(_policy_name, lambda job, view: build_network_policy(job, view.snapshot.settings)),
    SERVICE: _Beside(lambda job: job.status.network.service, lambda job, _: build_service(job)),
    WORKLOAD: _Beside(_group_name(POD_GROUP), lambda job, _: build_workload(job)),
    POD_GROUP: _Beside(_group_name(POD_GROUP), lambda job, _: build_pod_group(job)),
    VOLCANO_GROUP: _Beside(_group_name(VOLCANO_GROUP), lambda job, _: build_pod_group(job)),
}


def reconcile_objects(view: View, job: DDPJob) -> tuple[Action, ...]:
    """Creates the objects other than pods that a job lacks, then deletes those that are no longer wanted."""
    creates, deletes = list[Create](), list[Delete]()
    for kind, wanted in BESIDE.items():
        if kind not in view.snapshot.owned:  # The operator cannot create objects of this kind here.
            continue
        name, existing = wanted.name(job), view.snapshot.owned[kind]
        names = {known if isinstance(known, str) else known.name for known in existing}
        ending = {group.name for group in existing if isinstance(group, PodGroup) and group.deleting}
        if name is not None and name not in names:
            creates.append(Create(kind, wanted.build(job, view)))
        if "delete" in kind.verbs:
            deletes += (Delete(kind, surplus) for surplus in sorted(names - ending - {name}))
    return (*creates, *deletes)


def chosen(view: View) -> StatusChanges:
    """Returns the choice of NetworkPolicy for the coming attempts: the spec's, else the choice of the first start.

    The first start uses the organisation's default or else the operator's setting; or no policy, if the operator
    cannot create NetworkPolicies.
    """
    snapshot, possible = view.snapshot, NETWORK_POLICY in view.snapshot.owned
    usual = snapshot.defaults.network_policy or snapshot.settings.network_policy
    first = usual if possible else NetworkPolicy.DISABLED
    return {"policy": view.spec.network.policy or view.status.network.policy or first}


def outdated(view: View) -> tuple[Delete, ...]:
    """Deletes the NetworkPolicy if the status port has changed, so that it is recreated before the next start."""
    replaced = view.started and view.status.network.status_port != view.spec.network.status_port
    return tuple(Delete(NETWORK_POLICY, name) for name in view.snapshot.owned.get(NETWORK_POLICY, ()) if replaced)

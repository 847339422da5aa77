"""Steps that several policies share: starting a gang again, creating missing objects, stopping pods."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Unpack

from ddpjob_operator.api import (
    Budget,
    Cause,
    ConditionType,
    DDPJobStatus,
    Incarnations,
    InheritedMetadata,
)
from ddpjob_operator.api.contract import Label
from ddpjob_operator.api.inheritance import chosen as chosen_of
from ddpjob_operator.api.ownership import name_beside
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.changes import StatusChanges, changed
from ddpjob_operator.engine.conditions import Say, updated
from ddpjob_operator.engine.decision import (
    Action,
    Create,
    CreatePod,
    DeletePod,
    Event,
    StopPod,
)
from ddpjob_operator.engine.incidents.ledger import culprit
from ddpjob_operator.engine.incidents.price import backoff, present
from ddpjob_operator.engine.manifests.children import build_secret
from ddpjob_operator.engine.manifests.names import pod_group_name
from ddpjob_operator.engine.manifests.volumes import history_path
from ddpjob_operator.engine.owned import SECRET
from ddpjob_operator.engine.snapshot import Pod
from ddpjob_operator.engine.view import LOST_AFTER, View

from .beside import chosen, reconcile_objects
from .verdict import Times, Verdict

MOST_PEERS = 8
"""The most peer addresses that a pod gets. One that answers is enough, and a variable cannot hold thousands."""

DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' default grace period, for pods that set none."""

HURRY_MARGIN = timedelta(seconds=5)
"""A pod is deleted again, with a shorter grace period, only if that saves more time than this. Smaller differences
are unreliable, because deletion times are in whole seconds and come from another clock."""


GAVE_BACK = frozenset({Reason.GANG_INCOMPLETE, Reason.GAVE_WAY, Reason.AVOIDANCE_LIFTED})
"""Reasons for ending an attempt that never came up, so that its pods have nothing to save."""

ANNOUNCED = frozenset({Cause.EVICTED, Cause.PREEMPTED, Cause.POD_DELETED})
"""Causes after which a pod, and with it the whole gang, gets its own grace period to save."""

WITH_NOTICE = ANNOUNCED | {Reason.RESIZED, Reason.GROWN}


def start(view: View, *says: Say) -> Verdict:
    """Begins an attempt that does not follow an incident.

    Pods are created in the same round, unless pods of the last attempt still have to stop.
    """
    job = view.snapshot.job
    changes: StatusChanges = {
        **next_attempt(view),
        **stamped(view),
        # These three are not part of stamped(), because a resize uses stamped() too, but must not change them.
        "pod_security": view.snapshot.defaults.pod_security or view.snapshot.settings.pod_security,
        "inherited": inherited(view),
        "history_path": history_path(view.spec),
        "selector": f"{Label.JOB_UID}={job.metadata.uid}",
        "start_time": view.status.start_time or view.now,
        "first_run_time": None,
        "suspend_time": None,
    }
    status = updated(view, *says, **changes)
    removal = delete(view, view.removable, grace=None)
    if view.active:
        return Verdict(status, waiting_to_end(view, len(view.active)), removal)
    creation = creating(view, status, range(view.spec.nodes))
    return Verdict(status, f"Creating {view.pods(view.spec.nodes)}", (*removal, *creation))


def start_again(
    view: View,
    says: tuple[Say, ...],
    message: str,
    *,
    grace: int | None,
    wait: timedelta = timedelta(0),
    **changes: Unpack[StatusChanges],
) -> Verdict:
    """Stops the gang and starts it again after `wait`, with these conditions and fields of the status."""
    until = view.now + wait if wait else None
    again: StatusChanges = {**next_attempt(view), **changes, "backoff_until": until}
    status = updated(view, *says, **again)
    # The new status decides which pods are kept: now also the pod of this incident, and perhaps no longer that of an
    # older incident.
    left = view.with_status(status).removable
    return Verdict(status, message, stop(view, left, {culprit(status)}, grace=grace), wake_at=until)


def give_back(view: View, reason: Reason, message: str, wait: timedelta, **changes: Unpack[StatusChanges]) -> Verdict:
    """Lets a gang that never came up give back its Kubernetes nodes and try again after `wait`, at no cost."""
    says = restarting(reason, message, came_up=False)
    verdict = start_again(view, says, message, grace=short_grace(view), wait=wait, **changes)
    return replace(verdict, events=(Event(warning=True, reason=reason, message=message),))


def replace_alone(
    view: View,
    lost: Iterable[int],
    says: tuple[Say, ...],
    message: str,
    *,
    grace: int | None,
    until: datetime | None,
    **changes: Unpack[StatusChanges],
) -> Verdict:
    """Replaces the pods of the `lost` nodes while the others wait. Then all start again, but not before `until`."""
    incarnations = view.status.bookkeeping.incarnations.replaced(lost)
    fixed: StatusChanges = {"incarnations": incarnations, "supervised": True, "backoff_until": until}
    again: StatusChanges = {**fixed, **changes}
    status = updated(view, *says, **again)
    left = view.with_status(status).previous
    return Verdict(status, message, delete(view, left, grace=grace), wake_at=until)


def restarting(reason: str, message: str, *, came_up: bool = True) -> tuple[Say, ...]:
    """Returns the conditions of a gang that starts again. `came_up` is False if the gang never ran."""
    to_come = "Waiting for the next attempt" if came_up else message
    return (
        Say(ConditionType.RESTARTING, value=came_up, reason=reason, message=message),
        Say(ConditionType.RUNNING, value=False, reason=reason, message=message),
        Say(ConditionType.CREATED, value=False, reason=reason, message=to_come),
    )


def waiting_to_end(view: View, count: int) -> str:
    """Returns the message that explains why the next attempt does not begin yet."""
    if count:
        return f"Waiting for {view.pods(count)} of the previous attempt to stop"
    return f"Removing the {view.noun}s of the previous attempt"


def next_attempt(view: View) -> StatusChanges:
    """Returns the fields of the status that begin an attempt with new incarnations, and so with new pods."""
    incarnations = view.status.bookkeeping.incarnations.renewed()
    return {
        "attempt": attempt_after(view),
        "incarnations": incarnations,
        "service": name_beside(view.snapshot.job.ref),
        "pod_group": _own_group(view, incarnations),
        "avoided_node_names": view.avoided,
        # This stays False until a supervisor answers. If it were True, a gang whose supervisors cannot be reached
        # would never count as running.
        "supervised": False,
    }


def _own_group(view: View, incarnations: Incarnations) -> str | None:
    """Returns the name of the PodGroup of an attempt with these incarnations.

    None if the operator cannot create PodGroups, or if the template names a PodGroup itself.
    """
    possible = view.snapshot.pod_groups is not None and "schedulingGroup" not in view.spec.template["spec"]
    return pod_group_name(view.snapshot.job, incarnations.default) if possible else None


def attempt_after(view: View, ended: int = 0) -> int:
    """Returns the next attempt's number: above that of any attempt that supervisors started, and above `ended`."""
    return max(last_attempt(view), ended) + 1


def last_attempt(view: View) -> int:
    """Returns the number of the last attempt that the operator or supervisors started."""
    return max(view.status.attempt, view.report.attempt if view.report else 0)


def stamped(view: View) -> StatusChanges:
    """Returns the fields of the status that stay fixed for the coming attempts, even if defaults change."""
    network, gpus = view.spec.network, view.snapshot.settings.gpu_resources
    return {
        "nodes": view.spec.nodes,
        "procs_per_node": view.spec.resolved_procs_per_node(gpus),
        "backend": view.spec.resolved_backend(gpus),
        "master_port": network.master_port,
        "status_port": network.status_port,
        "control_port": network.control_port,
        **chosen(view),
        "trainer_image": None if view.spec.trainer.get("image") else default_image(view) or None,
    }


def inherited(view: View) -> InheritedMetadata | None:
    """Returns what all objects of the job inherit from the settings, the organisation's defaults and the job.

    The settings name the keys that are inherited from the job and its template.
    """
    snapshot, keys, defaults = view.snapshot, view.snapshot.settings.inherited_keys, view.snapshot.defaults
    template = view.spec.template.get("metadata", {}).get("annotations", {})
    found = InheritedMetadata(
        labels={**dict(snapshot.settings.labels), **defaults.labels, **chosen_of(snapshot.labels, keys)},
        annotations={
            **defaults.annotations,
            **chosen_of(snapshot.annotations, keys),
            **chosen_of(template, keys),
        },
    )
    return found if found.labels or found.annotations else None


def default_image(view: View) -> str:
    """Returns the image for a trainer whose template names none; empty if no default is set."""
    return view.status.trainer_image or view.snapshot.defaults.image or view.snapshot.settings.trainer_image


def creating(view: View, status: DDPJobStatus, nodes: Iterable[int]) -> tuple[Action, ...]:
    """Returns the actions that create the job's missing objects and the pods of these nodes."""
    # The PodGroup API may have been removed since the attempt began, and a server without it refuses pods that name a
    # PodGroup.
    if view.snapshot.pod_groups is None:
        status = changed(status, pod_group=None)
    job = view.snapshot.job.with_status(status)
    living = _living(view, status)
    pods = tuple(CreatePod(node, job, living, view.placement) for node in nodes)
    # The operator has no right to read Secrets, so whenever it creates pods, it first tries to create their Secret.
    has_run = view.status.first_run_time is not None
    secret = (Create(SECRET, build_secret(job), made_before=has_run),) if pods else ()
    return (*reconcile_objects(view, job), *secret, *pods)


def _living(view: View, status: DDPJobStatus) -> tuple[str, ...]:
    """Returns the addresses of other pods for a pod that joins a running gang, because DNS may still be outdated."""
    if not status.bookkeeping.supervised:
        return ()
    others = view.with_status(status).current.values()
    return tuple(pod.address for pod in others if pod.running and pod.address)[:MOST_PEERS]


def delete(view: View, pods: Iterable[Pod], *, grace: int | None) -> tuple[Action, ...]:
    """Deletes pods that are not being deleted yet, or whose deletion has a much longer grace period than `grace`.

    A pod that was told to stop and is to be kept is left alone until its stop timeout has passed.
    """
    limit = None if grace is None else view.now + timedelta(seconds=grace) + HURRY_MARGIN
    overdue = _is_stop_overdue(view)

    def late(pod: Pod) -> bool:
        return limit is not None and pod.gone_by is not None and pod.gone_by > limit

    goes = (pod for pod in pods if late(pod) or not (pod.deleting or (pod.stopping and not overdue)))
    return tuple(DeletePod(pod.name, pod.uid, grace) for pod in goes)


def stop(view: View, pods: Iterable[Pod], stay: Collection[str], *, grace: int | None) -> tuple[Action, ...]:
    """Stops pods. Running pods with names in `stay` are kept with their logs, and the others are deleted."""
    overdue, left = _is_stop_overdue(view), tuple(pods)
    stays = {pod.name for pod in left if pod.name in stay and pod.running and not pod.deleting}
    stops = tuple(StopPod(pod.name, pod.uid) for pod in left if pod.name in stays and not pod.stopped)
    # A pod that does not stop is deleted after all, because otherwise the job would wait for it forever.
    others = (pod for pod in left if pod.name not in stays or (pod.stopped and overdue))
    return (*stops, *delete(view, others, grace=grace))


def _stop_timeout(view: View) -> datetime | None:
    """Returns when pods that were told to stop, but are to be kept, count as hanging; None if the gang goes on."""
    status = view.status
    failing, created = status.condition(ConditionType.FAILURE_TARGET), status.condition(ConditionType.CREATED)
    if failing is not None and failing.status == "True":
        since = failing.last_transition_time
    elif created is not None and created.status == "False":  # The gang is to start again.
        since = created.last_transition_time
    else:
        return None
    grace = view.spec.template["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return since + timedelta(seconds=grace) + LOST_AFTER


def _is_stop_overdue(view: View) -> bool:
    """Whether pods that were told to stop, but are to be kept, count as hanging."""
    return view.is_due(_stop_timeout(view))


def ends_due(view: View) -> Times:
    """When pods that are being deleted will count as lost, and when hanging pods that were to be kept are deleted."""
    yield view.next_loss
    yield from stops_due(view)


def stops_due(view: View) -> Times:
    """When pods that were to be kept will be deleted because they do not stop."""
    if any(pod.stopping and not pod.deleting for pod in view.unsteady):
        yield _stop_timeout(view)


def short_grace(view: View) -> int:
    """Returns the grace period for pods with nothing to save, at least 1 s.

    With 0 the API server would forget a pod that may still run.
    """
    return max(1, view.spec.restart.grace_period_seconds)


def grace_after(view: View, reason: str) -> int | None:
    """Returns the grace period for pods of an attempt that ends for this reason; None means the pods' own."""
    return None if reason in WITH_NOTICE else short_grace(view)


def grace_between(view: View) -> int | None:
    """Returns the grace period for pods of the last attempt. It depends on why the attempt ended."""
    known = view.status.condition(ConditionType.RESTARTING)
    if known is None or known.status != "True":
        created = view.status.condition(ConditionType.CREATED)
        gave_back = created is not None and created.reason in GAVE_BACK
        return short_grace(view) if gave_back else None
    return grace_after(view, known.reason)


def budget(view: View) -> Budget:
    """Returns the present budget."""
    return present(view.spec, view.status, view.now)


def wait_after(view: View, spent: Budget) -> timedelta:
    """Returns the backoff before the next attempt, given this budget."""
    return backoff(view.spec.restart, spent.streak, view.snapshot.job.metadata.uid)

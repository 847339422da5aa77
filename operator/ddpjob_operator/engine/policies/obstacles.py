"""Messages that explain why a gang has not come up: what is blocking it, and what it is waiting for."""

from ddpjob_operator.api import ConditionType
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.conditions import Obstacle
from ddpjob_operator.engine.manifests.init_containers import VOLUMES_AND_NETWORK
from ddpjob_operator.engine.manifests.volumes import needed
from ddpjob_operator.engine.owned import VOLCANO
from ddpjob_operator.engine.snapshot import Pod, Waiting
from ddpjob_operator.engine.view import View

from .avoidance import ruled_out
from .steps import GAVE_BACK, default_image

NO_IMAGE = (
    "The trainer container has no image: set one in spec.template.spec.containers, or ask the operator's "
    "administrator to set a default (trainerImage)"
)

DEFAULT_SCHEDULER = "default-scheduler"

NO_POD_GROUP = (
    "spec.scheduling has no effect on this attempt: when it started, the cluster served no PodGroups "
    "(scheduling.k8s.io/v1beta1), or did not permit the operator to create them"
)


def awaited(view: View) -> str:
    """Returns a sentence that states what a gang that has not come up is waiting for."""
    obstacle = no_defaults(view) or no_image(view) or creation_obstacle(view)
    if obstacle is not None:
        return obstacle.message
    return starts_again(view) or _given_back(view) or running_message(view)


def no_defaults(view: View) -> Obstacle | None:
    """Returns an obstacle if the organisation's defaults are not known and the job has not begun without them."""
    unknown = view.snapshot.defaults_unknown
    return Obstacle(Reason.DEFAULTS_UNKNOWN, unknown) if unknown else None


def no_image(view: View) -> Obstacle | None:
    """Returns an obstacle if neither the job's template nor the operator's administrator names an image."""
    named = view.spec.trainer.get("image") or default_image(view)
    return None if named else Obstacle(Reason.IMAGE_MISSING, NO_IMAGE)


def creation_obstacle(view: View) -> Obstacle | None:
    """Returns what keeps missing objects from being created: the cluster's last refusal, else the status's obstacle.

    The obstacle in the status may come from a refusal that a former process of the operator got. It stays valid until
    this process has tried to create the object.
    """
    refusal = view.snapshot.refusal
    return known(view) if refusal is None else Obstacle(refusal.reason, refusal.message)


def known(view: View) -> Obstacle | None:
    """Returns the obstacle that the status holds."""
    blocked = view.status.condition(ConditionType.BLOCKED)
    return Obstacle(blocked.reason, blocked.message) if blocked is not None and blocked.status == "True" else None


def starts_again(view: View) -> str:
    """Returns why a gang is starting again; empty if it is not."""
    return view.status.message_while_true(ConditionType.RESTARTING)


def _given_back(view: View) -> str:
    """Returns why the gang gave back its Kubernetes nodes; empty if it did not, or once the next attempt has pods."""
    created = view.status.condition(ConditionType.CREATED)
    return created.message if created is not None and created.reason in GAVE_BACK else ""


def running_message(view: View) -> str:
    """Returns how many of the pods are running, and what the others are waiting for."""
    why = "; ".join(part for part in (_waiting_for(view), ungrouped(view)) if part)
    return f"{view.running + view.succeeded} of {view.pods(view.nodes)} running{f'; {why}' if why else ''}"


def ungrouped(view: View) -> str:
    """Returns a message if the present attempt lacks a PodGroup although spec.scheduling requests one; else empty.

    Templates that name a PodGroup of their own need no check, because they cannot be combined with spec.scheduling.
    """
    asked = view.spec.scheduling
    grouped = view.status.pod_group
    in_vain = asked is not None and (asked.scheduling_policy or asked.disruption_mode) and not grouped
    return NO_POD_GROUP if in_vain else ""


def _waiting_for(view: View) -> str:
    """Returns why the scheduler has not placed the gang or, once a pod is placed, which node is waiting and why."""
    group = view.pod_group
    if group is not None and group.waiting is not None and not view.placed:
        return f"no room for the gang yet: {group.waiting}{_lacking(view, group.waiting)}{_broken(view)}"
    waiting = [pod for pod in view.current_unsteady.values() if not pod.running and pod.active]
    if not waiting:
        return ""
    first = next((pod for pod in waiting if pod.waiting), waiting[0])
    alike = (
        sum(pod.waiting == first.waiting and (pod.node_name is None) == (first.node_name is None) for pod in waiting)
        - 1
    )
    more = f" and {alike} more" if alike else ""
    what = first.waiting or _silent(view, first)
    hints = f"{_volumes(view, first)}{_topology(view, first)}{'' if first.node_name else _broken(view)}"
    return f"{view.called} {first.node}{more}: {what}{hints}"


def _lacking(view: View, said: Waiting) -> str:
    """Returns the first message about a single pod that is not already in the scheduler's message about the group."""
    own = ((node, pod.waiting.message) for node, pod in view.current.items() if pod.waiting is not None)
    return next((f"; {view.called} {node}: {words}" for node, words in own if words not in said.message), "")


def _volumes(view: View, pod: Pod) -> str:
    """Lists the objects that a waiting pod's volumes refer to, because one of these objects may be missing."""
    if pod.waiting is None or pod.waiting.reason != VOLUMES_AND_NETWORK:
        return ""
    volumes = needed(view.snapshot.job)
    return f" (check that these exist: {', '.join(volumes)})" if volumes else ""


def _topology(view: View, pod: Pod) -> str:
    """Names the required topology label if the scheduler finds no Kubernetes node, because perhaps none has it."""
    topology = view.spec.topology
    if topology is None or topology.required is None or pod.waiting is None or "affinity" not in pod.waiting.message:
        return ""
    return (
        f" (check that Kubernetes nodes have the label {topology.required}, which spec.scheduling.topology requires)"
    )


def _broken(view: View) -> str:
    """Lists the Kubernetes nodes that are ruled out for unscheduled pods because they are broken."""
    broken = ruled_out(view)
    return f" (ruled out as broken: {broken})" if broken else ""


def _silent(view: View, pod: Pod) -> Waiting:
    """Returns what a pod is probably waiting for, if neither the scheduler nor the kubelet reports it."""
    if pod.node_name is not None:
        return Waiting(f"starting on {view.snapshot.settings.host} {pod.node_name}")
    scheduler = view.spec.template["spec"].get("schedulerName", DEFAULT_SCHEDULER)
    if scheduler == DEFAULT_SCHEDULER:
        return Waiting("waiting to be scheduled")
    queue = ", and that its queue exists" if scheduler == VOLCANO else ""  # Without a queue, Volcano is silent.
    return Waiting(f"waiting for {scheduler}, which has reported nothing: check that it is running{queue}")

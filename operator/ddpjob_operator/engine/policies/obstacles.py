"""Why a gang has not come up, in words: what is in its way, and what it is waiting for."""

from ddpjob_operator.api import ConditionType
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.engine.conditions import Obstacle
from ddpjob_operator.engine.manifests.init_containers import VOLUMES_AND_NETWORK
from ddpjob_operator.engine.manifests.volumes import needed
from ddpjob_operator.engine.owned import VOLCANO
from ddpjob_operator.engine.snapshot import Pod, Waiting
from ddpjob_operator.engine.view import View

from .steps import GAVE_BACK, default_image

NO_IMAGE = (
    "No image is named: give the trainer container one (spec.template.spec.containers), or have the operator's "
    "administrator set one for jobs that name none (trainerImage)"
)

DEFAULT_SCHEDULER = "default-scheduler"

NO_POD_GROUP = (
    "spec.scheduling has no effect on this attempt: when it started, the cluster served no PodGroups "
    "(scheduling.k8s.io/v1beta1), or did not let the operator make them"
)


def awaited(view: View) -> str:
    """What a gang that has not come up is waiting for, in a sentence."""
    obstacle = no_image(view) or in_the_way(view)
    if obstacle is not None:
        return obstacle.message
    return starts_again(view) or _given_back(view) or so_many_run(view)


def no_image(view: View) -> Obstacle | None:
    """The obstacle that neither the job nor the operator's administrator names an image."""
    named = view.spec.trainer.get("image") or default_image(view)
    return None if named else Obstacle(Reason.IMAGE_MISSING, NO_IMAGE)


def in_the_way(view: View) -> Obstacle | None:
    """Why what is missing is not created: by the refusal that this process got, or else by the status.

    The status may hold a refusal that another process got; it stands until this one has tried.
    """
    refusal, said = view.snapshot.refusal, view.status.condition(ConditionType.BLOCKED)
    if refusal is not None:
        return Obstacle(refusal.reason, refusal.message)
    return Obstacle(said.reason, said.message) if said is not None and said.status == "True" else None


def starts_again(view: View) -> str:
    """Why a gang starts again; empty if it does not."""
    return view.status.message_while_true(ConditionType.RESTARTING)


def _given_back(view: View) -> str:
    """Why the gang gave back its nodes, until the next attempt has its pods; empty if it did not."""
    said = view.status.condition(ConditionType.CREATED)
    return said.message if said is not None and said.reason in GAVE_BACK else ""


def so_many_run(view: View) -> str:
    """How many of the pods are running, and what the others are waiting for."""
    told = "; ".join(part for part in (_waiting_for(view), ungrouped(view)) if part)
    return f"{view.running + view.succeeded} of {view.pods(view.nodes)} running{f'; {told}' if told else ''}"


def ungrouped(view: View) -> str:
    """That the present attempt has no PodGroup although the job says how it is to be placed; empty if that is not so.

    The template's own one is the template's matter.
    """
    asked = view.spec.scheduling
    grouped = view.status.pod_group
    in_vain = asked is not None and (asked.scheduling_policy or asked.disruption_mode) and not grouped
    return NO_POD_GROUP if in_vain else ""


def _waiting_for(view: View) -> str:
    """What the scheduler says of the whole gang or, once it is placed, which node it is waiting for and why."""
    group = view.pod_group
    if group is not None and group.waiting is not None and not view.placed:
        return f"no room for the gang yet: {group.waiting}{_lacking(view, group.waiting)}"
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
    return f"{view.called} {first.node}{more}: {what}{_volumes(view, first)}{_topology(view, first)}"


def _lacking(view: View, said: Waiting) -> str:
    """What the first pod lacks of which the scheduler says more than what it says of the whole group."""
    own = ((node, pod.waiting.message) for node, pod in view.current.items() if pod.waiting is not None)
    return next((f"; {view.called} {node}: {words}" for node, words in own if words not in said.message), "")


def _volumes(view: View, pod: Pod) -> str:
    """What a pod's volumes need, if it is waiting for them: if something is missing, it is among these."""
    if pod.waiting is None or pod.waiting.reason != VOLUMES_AND_NETWORK:
        return ""
    volumes = needed(view.spec.template)
    return f" (do these exist? {', '.join(volumes)})" if volumes else ""


def _topology(view: View, pod: Pod) -> str:
    """Which label the scheduler goes by if no Kubernetes node is close enough: it may be that none has it."""
    topology = view.spec.topology
    if topology is None or topology.required is None or pod.waiting is None or "affinity" not in pod.waiting.message:
        return ""
    return f" (spec.scheduling.topology: do Kubernetes nodes have the label {topology.required}?)"


def _silent(view: View, pod: Pod) -> Waiting:
    """What a pod is waiting for if neither the scheduler nor its kubelet says why."""
    if pod.node_name is not None:
        return Waiting(f"starting on Kubernetes node {pod.node_name}")
    scheduler = view.spec.template["spec"].get("schedulerName", DEFAULT_SCHEDULER)
    if scheduler == DEFAULT_SCHEDULER:
        return Waiting("waiting to be scheduled")
    queue = ", and does its queue exist" if scheduler == VOLCANO else ""  # Without one, Volcano says nothing at all.
    return Waiting(f"waiting for {scheduler}, which has said nothing: is it running{queue}?")

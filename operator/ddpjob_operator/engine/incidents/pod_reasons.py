"""Why a pod ended as a whole, by the reason in its status, and who is to blame: the cluster or the job.

The reasons are those that Kubernetes 1.30 to 1.37 sets, by its source: pkg/kubelet (kubelet.go, active_deadline.go,
lifecycle, eviction, preemption, nodeshutdown, sysctl, cm, volumemanager) and the scheduler's AdmissionCheck.
"""

from ddpjob_operator.api import Cause

EVICTED = "Evicted"
DEADLINE_EXCEEDED = "DeadlineExceeded"

ENDED = {
    EVICTED: Cause.STORAGE_EXCEEDED,
    DEADLINE_EXCEEDED: Cause.APPLICATION,
    "Preempting": Cause.PREEMPTED,
    "Terminated": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_LOST,
    "Shutdown": Cause.NODE_LOST,
    "NodeLost": Cause.NODE_LOST,
}
"""The cause for each reason that a pod has if a kubelet ended it. The first two are the job's own fault: it used more
storage, or ran for longer, than its template allows. If a pod was evicted because its Kubernetes node ran short of
something, it also has the condition DisruptionTarget, and that condition counts."""

MORE_PRECISE = ENDED.keys() - {EVICTED}
"""Reasons that tell more than the condition DisruptionTarget, which a kubelet always sets with the same reason."""

REJECTED = frozenset(
    {
        *("NodeAffinity", "NodeName", "NodePorts", "TaintToleration"),
        *("UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", "InvalidNodeInfo"),
        *("TopologyAffinityError", "SMTAlignmentError", "inconsistentCPUAllocationError"),
        *("prohibitedCPUAllocationError", "getPromisedCPUSetError", "VolumeAttachmentLimitExceeded"),
        *("OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods"),
    }
)
"""Reasons of pods that a kubelet rejected because its Kubernetes node lacks, or no longer has, what the scheduler
counted on. A restarted kubelet repeats this check for running pods, and ends those that it rejects."""

UNSUPPORTED = frozenset(
    {
        *("PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "SysctlForbidden", "AppArmor"),
        *("SupplementalGroupsPolicyNotSupported", "InitContainerRestartPolicyForbidden"),
        *("PodLevelResourcesNotSupported", "PodFeatureUnsupported"),
    }
)
"""Reasons of pods that a kubelet rejected because it does not allow what their template asks for."""

REJECTION = "Pod was rejected: "
"""How a kubelet begins the message of a pod that it rejected."""
PRESSURE = "The node had condition: "
"""How a kubelet explains that it rejected a pod for a shortage, with the reason that evicted pods have too."""


def is_rejection(reason: str, message: str) -> bool:
    """Whether a pod's reason says that its Kubernetes node rejected it, before it ran or later."""
    if reason == EVICTED:
        return message.removeprefix(REJECTION).startswith(PRESSURE)
    # The reasons cannot be listed: future versions will have more, and some contain the name of a device's resource.
    return bool(reason) and reason not in ENDED


def rejection_cause(reason: str, *, ran: bool) -> Cause:
    """The cause if a Kubernetes node rejected a pod: the job is to blame only if its template was never allowed."""
    return Cause.APPLICATION if reason in UNSUPPORTED and not ran else Cause.EVICTED

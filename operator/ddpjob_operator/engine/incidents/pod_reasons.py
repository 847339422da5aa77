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
"""By the reasons of pods that a kubelet ended: the cause. The first two are the job's own: it used more storage, or
ran for longer, than its template allows. If its Kubernetes node ran short of something, an evicted pod also has the
condition DisruptionTarget; then that counts."""

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
counted on. A kubelet that is restarted also asks this of pods that run, and ends those that it rejects."""

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
    # Future versions will have more reasons to reject a pod; for devices the resource's name is part of the reason.
    return bool(reason) and reason not in ENDED


def rejection_cause(reason: str, *, ran: bool) -> Cause:
    """The cause if a Kubernetes node rejected a pod: the job is to blame only if its template was never allowed."""
    return Cause.APPLICATION if reason in UNSUPPORTED and not ran else Cause.EVICTED

"""Interprets the reason in the status of a pod that ended as a whole: is the cluster or the job to blame?

These are the reasons in the source of Kubernetes 1.30 to 1.37: pkg/kubelet (kubelet.go, active_deadline.go,
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
"""The causes for pods that a kubelet ended, by their reason. The first two are the job's own fault: it used more
storage, or ran longer, than its template allows. A pod that was evicted because its Kubernetes node ran out of a
resource also has the condition DisruptionTarget, which takes precedence."""

MORE_PRECISE = ENDED.keys() - {EVICTED}
"""Reasons that are more precise than the condition DisruptionTarget, to which a kubelet always gives the same
reason."""

REJECTED = frozenset(
    {
        *("NodeAffinity", "NodeName", "NodePorts", "TaintToleration"),
        *("UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", "InvalidNodeInfo"),
        *("TopologyAffinityError", "SMTAlignmentError", "inconsistentCPUAllocationError"),
        *("prohibitedCPUAllocationError", "getPromisedCPUSetError", "VolumeAttachmentLimitExceeded"),
        *("OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods"),
    }
)
"""Reasons of pods that a kubelet rejected because its Kubernetes node lacks something that the scheduler had assumed.
When a kubelet restarts, it repeats this check for running pods, and ends the pods that it rejects."""

UNSUPPORTED = frozenset(
    {
        *("PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "SysctlForbidden", "AppArmor"),
        *("SupplementalGroupsPolicyNotSupported", "InitContainerRestartPolicyForbidden"),
        *("PodLevelResourcesNotSupported", "PodFeatureUnsupported"),
    }
)
"""Reasons of pods that a kubelet rejected because it does not support or allow something in their template."""

REJECTION = "Pod was rejected: "
"""The beginning of the message of a pod that a kubelet rejected."""
PRESSURE = "The node had condition: "
"""The message of a pod that a kubelet rejected because of a shortage begins like this. The pod's reason is the same
as after an eviction."""


def is_rejection(reason: str, message: str) -> bool:
    """Whether a pod's reason and message show that its kubelet rejected it, before it ran or later."""
    if reason == EVICTED:
        return message.removeprefix(REJECTION).startswith(PRESSURE)
    # Any other reason counts as a rejection. The reasons for rejections cannot be listed, because future versions
    # will have more, and some contain the name of a device's resource.
    return bool(reason) and reason not in ENDED


def rejection_cause(reason: str, *, ran: bool) -> Cause:
    """Returns the cause if a kubelet rejected a pod. The job is to blame only if its template was never allowed."""
    return Cause.APPLICATION if reason in UNSUPPORTED and not ran else Cause.EVICTED

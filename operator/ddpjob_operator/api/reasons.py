"""The reasons of conditions, each a single word for programs, and advice for people about each reason.

If a condition results from a failure, its reason is the failure's cause.
"""

from enum import StrEnum

from .causes import Cause


class Reason(StrEnum):
    """Why a condition is as it is."""

    # The job is blocked.
    SERVICE_TAKEN = "ServiceTaken"
    """A Service that does not belong to the job has the name that the job's Service needs."""
    POD_TAKEN = "PodTaken"
    """A pod that does not belong to the job has the name that one of the job's pods needs."""
    NETWORK_POLICY_TAKEN = "NetworkPolicyTaken"
    """A NetworkPolicy that does not belong to the job has the name that the job's NetworkPolicy needs."""
    WORKLOAD_TAKEN = "WorkloadTaken"
    """A Workload that does not belong to the job has the name that one of the job's Workloads needs."""
    POD_GROUP_TAKEN = "PodGroupTaken"
    """A PodGroup that does not belong to the job has the name that one of the job's PodGroups needs."""
    POD_DISRUPTION_BUDGET_TAKEN = "PodDisruptionBudgetTaken"
    """A PodDisruptionBudget that does not belong to the job has the name that the job's needs."""
    BEING_DELETED = "BeingDeleted"
    """An object whose name the job needs is being deleted. The job waits until that object is gone."""
    NO_EFFECT = "NoEffect"
    """The operator sees no effect of its last actions."""
    IMAGE_MISSING = "ImageMissing"
    """The trainer's container names no image, and the operator's administrator has set none."""
    DEFAULTS_UNKNOWN = "DefaultsUnknown"
    """The operator cannot read the organisation's defaults, or to which namespaces they apply. No job begins."""
    QUOTA_EXCEEDED = "QuotaExceeded"
    """The namespace's quota does not allow the job's pods."""
    POD_SECURITY_VIOLATION = "PodSecurityViolation"
    """The namespace's Pod Security Standard does not allow the job's pods."""
    LIMIT_RANGE_VIOLATION = "LimitRangeViolation"
    """A LimitRange of the namespace does not allow the resources that a container of the job's pods requests."""
    RESOURCES_MISSING = "ResourcesMissing"
    """The namespace's quota demands requests or limits that a container of the job's pods lacks."""
    POLICY_DENIED = "PolicyDenied"
    """An admission webhook or a ValidatingAdmissionPolicy of the cluster forbids an object that the job needs. The
    template itself is valid."""
    FORBIDDEN = "Forbidden"
    """The operator is not permitted to create an object that the job needs."""
    WEBHOOK_FAILED = "WebhookFailed"
    """A webhook of the cluster that has to approve each pod does not answer."""
    INVALID = "Invalid"
    """The API server rejects a pod made from the template as invalid."""
    QUEUE_UNAVAILABLE = "QueueUnavailable"
    """The job names a queue, but the cluster has no Kueue, or does not let the operator use Kueue."""
    FLAVOR_UNKNOWN = "FlavorUnknown"
    """The queue has admitted the job with a ResourceFlavor that the operator cannot read."""
    FORMER_VERSION = "FormerVersion"
    """A release with a former version of the type started the job, and this release cannot continue it."""
    UNREADABLE = "Unreadable"
    """The spec has a field or a value that this version of the operator does not know."""
    STATUS_REFUSED = "StatusRefused"
    """The API server refuses the operator's new status because of the type's schema or a policy."""
    UNBLOCKED = "Unblocked"
    """Nothing blocks the job any longer."""
    SEVERAL_OPERATORS = "SeveralOperators"
    """Only an event: a second operator would run the job too. The operator that took the job first runs it."""

    # The job is in a queue. While it waits, the reason is usually Kueue's own.
    QUEUE_ENTERED = "QueueEntered"
    """The queue has not considered the job yet."""
    QUEUE_CHANGED = "QueueChanged"
    """The job now requests another queue, more nodes or other pods than it was admitted with, or its Workload was
    deleted. It saves, stops, and waits to be admitted again."""
    QUEUED = "Queued"
    """The job waits in its queue, so the condition is not true."""
    DEQUEUED = "Dequeued"
    """The queue has admitted the job, or the job has left the queue."""

    # The gang comes up, runs, starts again.
    PODS_CREATED = "PodsCreated"
    """All pods of this attempt exist."""
    PODS_STARTING = "PodsStarting"
    """Some pods are not running yet. The message says what the first of them is waiting for."""
    ALL_PODS_RUNNING = "AllPodsRunning"
    """The trainer runs in every pod."""
    RESTARTED = "Restarted"
    """The next attempt is running."""
    UNSTALLED = "Unstalled"
    """Steps are finishing again, or the gang is not running."""
    NO_STEP_SEEN = "NoStepSeen"
    """No step has finished for the time given in the message, which also shows where the ranks are."""
    STEP_SEEN = "StepSeen"
    """The attempt has finished a step, or the gang is not running."""
    SUPERVISOR_SILENT = "SupervisorSilent"
    """Rank 0's supervisor has not answered for 30 s. The message contains the error."""
    SUPERVISOR_HEARD = "SupervisorHeard"
    """Rank 0's supervisor is answering again, or the gang is not running."""
    NOT_FINITE = "NotFinite"
    """The loss is NaN or infinite. The message names the step at which this was first seen, about a second late."""
    FINITE = "Finite"
    """The loss is a finite number again."""
    WENT_ON = "WentOn"
    """The last attempt continued from an earlier attempt's checkpoint, or began where it was told to begin."""
    RESIZED = "Resized"
    """`nodes` was changed, so the gang starts again with the new size."""
    SHRUNK = "Shrunk"
    """Some pods found no room within elastic.shrinkAfterSeconds, so the gang starts again without them."""
    GROWN = "Grown"
    """There is room for missing pods, so the gang starts again with them."""
    GAVE_WAY = "GaveWay"
    """Neither this job nor a job ahead in line could get all its pods scheduled. So this gang gives back its
    Kubernetes nodes, and tries again later."""
    AVOIDANCE_LIFTED = "AvoidanceLifted"
    """Some pods found only Kubernetes nodes that are broken, so pods may be placed on these nodes again."""
    GANG_INCOMPLETE = "GangIncomplete"
    """Some pods could not be scheduled within scheduleTimeoutSeconds, or did not start to run. So the gang deletes
    all its pods, and tries again."""

    # Suspension.
    SUSPENDED = "Suspended"
    """The job is suspended, so the condition is not true."""
    JOB_SUSPENDED = "JobSuspended"
    """`suspend` is set, and nothing is running."""
    JOB_RESUMED = "JobResumed"
    """`suspend` was set to false."""
    CODE_REPLACED = "CodeReplaced"
    """The ranks started again in place with new code, as `ddpjob submit --replace --in-place` has asked."""
    CODE_FAILED = "CodeFailed"
    """New code failed before its first step, so the gang starts again with its former code."""

    # The end.
    ALL_RANKS_SUCCEEDED = "AllRanksSucceeded"
    """Every rank has exited with 0."""
    RANK_ZERO_SUCCEEDED = "RankZeroSucceeded"
    """Rank 0 has exited with 0, which is enough with `successPolicy: RankZero`."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The job was active for activeDeadlineSeconds."""
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    """The job was active for startDeadlineSeconds without all its ranks ever having run at the same time."""
    CANCELLED = "Cancelled"
    """`cancel` was set."""
    MAX_RESTARTS_EXCEEDED = "MaxRestartsExceeded"
    """There was one more incident than restart.maxRestarts allows."""
    MAX_DISRUPTIONS_EXCEEDED = "MaxDisruptionsExceeded"
    """There was one more disruption than restart.maxDisruptions allows."""
    CRASH_LOOP = "CrashLoop"
    """Another restart would not help: the same error ended two attempts before their first step, or three attempts
    after the same number of counted steps; or training got no further from the first to the third of three incidents
    in a row."""
    RESTORED_WITHOUT_STATUS = "RestoredWithoutStatus"
    """The job had finished, and was recreated with the annotation `ddpjob.dev/finished` but without its status."""


DEADLINES = frozenset({Reason.DEADLINE_EXCEEDED, Reason.START_DEADLINE_EXCEEDED})
FROM_OUTSIDE = DEADLINES | {Reason.CANCELLED}
"""Reasons for which a job fails although none of its ranks has failed."""

PASSES: dict[str, bool] = {
    Reason.SERVICE_TAKEN: False,
    Reason.POD_TAKEN: False,
    Reason.NETWORK_POLICY_TAKEN: False,
    Reason.WORKLOAD_TAKEN: False,
    Reason.POD_GROUP_TAKEN: False,
    Reason.POD_DISRUPTION_BUDGET_TAKEN: False,
    Reason.BEING_DELETED: True,
    Reason.NO_EFFECT: True,  # The operator's data about the cluster may be outdated.
    Reason.IMAGE_MISSING: False,
    Reason.DEFAULTS_UNKNOWN: False,
    Reason.QUOTA_EXCEEDED: True,
    Reason.POD_SECURITY_VIOLATION: False,
    Reason.LIMIT_RANGE_VIOLATION: False,
    Reason.RESOURCES_MISSING: False,
    Reason.POLICY_DENIED: False,
    Reason.FORBIDDEN: False,
    Reason.WEBHOOK_FAILED: True,
    Reason.INVALID: False,
    Reason.QUEUE_UNAVAILABLE: False,
    Reason.FLAVOR_UNKNOWN: False,
    Reason.FORMER_VERSION: False,
    Reason.UNREADABLE: True,  # During an upgrade the new type is installed before the new operator.
    Reason.STATUS_REFUSED: False,
}
"""For each reason why a job may be blocked: whether the obstacle can disappear without anybody changing anything.
Kueue's own reasons are not listed, because waiting does not help with them."""

NOTHING_TO_DO = "Nothing."
READ_THE_LOG = (
    "Read `ddpjob logs NAME`, with `--previous` once the gang has started again: the output begins with the rank "
    "that failed first, which `status.incidents[0]` names."
)

ADVICE: dict[Reason | Cause, str] = {
    Reason.SERVICE_TAKEN: "Delete the Service, or give the job another name.",
    Reason.POD_TAKEN: "Delete the pod, or give the job another name.",
    Reason.NETWORK_POLICY_TAKEN: "Delete the NetworkPolicy, or give the job another name.",
    Reason.WORKLOAD_TAKEN: "Delete the Workload, or give the job another name.",
    Reason.POD_GROUP_TAKEN: "Delete the PodGroup, or give the job another name.",
    Reason.POD_DISRUPTION_BUDGET_TAKEN: "Delete the PodDisruptionBudget, or give the job another name.",
    Reason.BEING_DELETED: "Wait until the object is gone. If it remains, a finalizer is keeping it: "
    "`kubectl get -o yaml` shows which.",
    Reason.NO_EFFECT: "Look at the objects that the message names: something undoes or hides the operator's changes. "
    "The operator tries again, at growing intervals.",
    Reason.IMAGE_MISSING: "Suspend the job, give the trainer an image, and resume it; or ask the operator's "
    "administrator to set `trainerImage`.",
    Reason.DEFAULTS_UNKNOWN: "Show the message to the operator's administrator, who has to correct the "
    "defaults. The job then begins by itself.",
    Reason.QUOTA_EXCEEDED: "Wait for other work to end, ask for less, or have the quota raised. "
    "`kubectl describe quota` shows it.",
    Reason.POD_SECURITY_VIOLATION: "Change the part of the template that the message names, or move to a namespace "
    "that allows it.",
    Reason.LIMIT_RANGE_VIOLATION: "Suspend the job, ask for amounts that `kubectl describe limitrange` allows, and "
    "resume it.",
    Reason.RESOURCES_MISSING: "Add the missing amounts to the containers that the message names: "
    "`ddpjob submit --replace --cpu 4 --memory 16Gi`, or suspend the job, change its template, and resume it.",
    Reason.POLICY_DENIED: "The message says what the policy demands. If that is a label, put it into "
    "`spec.template.metadata.labels`, from which all objects of the job get it: suspend the job, add the label, and "
    "resume the job. If no job can meet the demand, show the message to the cluster's administrator.",
    Reason.FORBIDDEN: "Show the message to the cluster's administrator.",
    Reason.WEBHOOK_FAILED: "Ask whoever runs the webhook that the message names to fix it. `kubectl get "
    "validatingwebhookconfigurations,mutatingwebhookconfigurations` lists all webhooks.",
    Reason.INVALID: "Suspend the job, fix the part of its template that the message names, and resume the job. If "
    "that part is not in the template but in the organisation's defaults (`status.defaults`), show the message to "
    "the cluster's administrator; once they are right, delete the job and create it again.",
    Reason.QUEUE_UNAVAILABLE: "Have Kueue installed, or remove the label `kueue.x-k8s.io/queue-name` from the job. "
    "The operator checks again every five minutes.",
    Reason.FLAVOR_UNKNOWN: "Give the operator the right that the message names (`rbac.kueue` in the chart).",
    Reason.FORMER_VERSION: "Delete the job, and create it again from a file in the form of this version; the page "
    "on versions has the steps.",
    Reason.UNREADABLE: "Nothing during an upgrade. Otherwise install the operator and the type from the same "
    "release, or remove from the job what the message names.",
    Reason.STATUS_REFUSED: "Read the message. If it names a field, apply the type of the operator's release "
    "(`deploy/crd.yaml`); if a policy refuses the operator's writes, have the operator exempted from it.",
    Reason.UNBLOCKED: NOTHING_TO_DO,
    Reason.SEVERAL_OPERATORS: "Show the message to the cluster's administrator: in each namespace, only one operator "
    "may run the jobs of a class.",
    Reason.QUEUE_ENTERED: "Nothing. If it lasts, see whether Kueue is running.",
    Reason.QUEUE_CHANGED: NOTHING_TO_DO,
    Reason.QUEUED: NOTHING_TO_DO,
    Reason.DEQUEUED: NOTHING_TO_DO,
    Reason.PODS_CREATED: NOTHING_TO_DO,
    Reason.PODS_STARTING: "Read the message. If a pod cannot be scheduled, make room for it, or request less. "
    "If an image cannot be pulled, fix its name.",
    Reason.ALL_PODS_RUNNING: NOTHING_TO_DO,
    Reason.RESTARTED: NOTHING_TO_DO,
    Reason.UNSTALLED: NOTHING_TO_DO,
    Reason.NO_STEP_SEEN: "Look where the ranks are: `ddpjob status NAME --stacks`. If they hang, stop the job; "
    "`firstStepTimeoutSeconds` ends attempts whose first step takes too long. If the program reports no steps, have "
    "it call `ddpjob.report()`.",
    Reason.STEP_SEEN: NOTHING_TO_DO,
    Reason.SUPERVISOR_SILENT: "Nothing, if it lasts only a moment. Otherwise see whether a NetworkPolicy or a "
    "firewall keeps the operator from the pod's status port (spec.network.statusPort).",
    Reason.SUPERVISOR_HEARD: NOTHING_TO_DO,
    Reason.NOT_FINITE: "Look at the learning rate, and at the data of the steps before that. If the program does not "
    "recover, stop it before it replaces its checkpoints: `ddpjob suspend NAME`.",
    Reason.FINITE: NOTHING_TO_DO,
    Reason.WENT_ON: NOTHING_TO_DO,
    Reason.RESIZED: NOTHING_TO_DO,
    Reason.SHRUNK: "Nothing. The gang grows again when Kubernetes nodes are freed or added.",
    Reason.GROWN: NOTHING_TO_DO,
    Reason.GAVE_WAY: "Nothing: the gang tries again when the job is first in line, or after a while. To start "
    "sooner, free Kubernetes nodes, or ask for fewer nodes.",
    Reason.AVOIDANCE_LIFTED: "Nothing, if the Kubernetes nodes that the message names have been repaired. To keep "
    "pods off them, cordon them, and free or add others.",
    Reason.GANG_INCOMPLETE: "Free Kubernetes nodes, or ask for fewer nodes. Otherwise the job keeps trying, "
    "until startDeadlineSeconds if that is set.",
    Reason.SUSPENDED: NOTHING_TO_DO,
    Reason.JOB_SUSPENDED: "`ddpjob resume NAME` resumes the job.",
    Reason.JOB_RESUMED: "Nothing, if you resumed the job. If a tool such as Argo CD undid the suspension, set "
    "`spec.suspend` in its repository.",
    Reason.CODE_REPLACED: NOTHING_TO_DO,
    Reason.CODE_FAILED: "Correct the code, and send it again: `ddpjob submit --replace --in-place`. Meanwhile the "
    "job trains on with its former code.",
    Reason.ALL_RANKS_SUCCEEDED: NOTHING_TO_DO,
    Reason.RANK_ZERO_SUCCEEDED: NOTHING_TO_DO,
    Reason.DEADLINE_EXCEEDED: "Read `ddpjob logs NAME`: the pods were stopped, not removed. Submit again with a "
    "later deadline; training continues from the checkpoint if the volume or the URL is the same.",
    Reason.START_DEADLINE_EXCEEDED: "Read the message: it says what the job was waiting for last.",
    Reason.CANCELLED: "Nothing. `ddpjob logs NAME` still has the output. To train on, submit the job again: it "
    "continues from the checkpoint if the volume or the URL is the same.",
    Reason.MAX_RESTARTS_EXCEEDED: READ_THE_LOG,
    Reason.MAX_DISRUPTIONS_EXCEEDED: "Find out who removes the pods: `status.incidents` lists times and causes.",
    Reason.CRASH_LOOP: "Fix what the message names. If the same step fails each time, look at its data and at the "
    "checkpoint that is loaded. If trying again may help anyway, add a rule with `action: Restart`. " + READ_THE_LOG,
    Reason.RESTORED_WITHOUT_STATUS: "Nothing. To run the job again, delete it and create it without the annotation "
    "`ddpjob.dev/finished`; `ddpjob submit` leaves the annotation out.",
    Cause.APPLICATION: READ_THE_LOG,
    Cause.OUT_OF_MEMORY: "Raise the memory limit, or use less: smaller batches, fewer DataLoader workers. /dev/shm "
    "counts too.",
    Cause.CONFIG_ERROR: "Fix what the message names, and submit the job again.",
    Cause.DIVERGED: "Look at the samples that the message names, and at the learning rate. The checkpoints are from "
    "before the failure. `ddpjob-train --on-divergence skip` skips steps whose gradients are not finite; a rule with "
    "`action: Restart` makes the job try again.",
    Cause.STORAGE_FULL: "Make room on the full volume, or keep fewer checkpoints (`checkpoint.keep`). On a cluster, "
    "a path that is on no volume, such as `/tmp`, is on the Kubernetes node's own disk: write to a volume.",
    Cause.STORAGE_UNAVAILABLE: "Nothing, if the file server or the object store comes back. Otherwise see whether "
    "the pod's user may read what the message names.",
    Cause.CHECKPOINT_UNUSABLE: "Go back to the image that wrote the checkpoints, or name another directory. To "
    "begin at step 0 and keep them, give ddpjob-train `--start-over`.",
    Cause.STORAGE_EXCEEDED: "Raise the limit that the message names (ephemeral-storage, an emptyDir's sizeLimit), or "
    "write elsewhere.",
    Cause.IMAGE_ERROR: "Fix the image's name or tag, or the pull secret, and submit the job again.",
    Cause.START_ERROR: "Fix the command, or create the ConfigMap or Secret that the message names.",
    Cause.PREFLIGHT_FAILED: "Have someone check the machine that the message names.",
    Cause.DEVICE_FAILED: "Have someone check the machine's GPUs (`nvidia-smi -q`, Xid in the kernel's log). On a "
    "cluster, new pods avoid the machine for an hour.",
    Cause.STALLED: READ_THE_LOG,
    Cause.STARTED_OVER: "If the job still runs, stop it before it replaces its checkpoints: `ddpjob suspend NAME`. "
    'Then have the program load its last checkpoint when it starts, as the tutorial "Make your script resume" '
    "shows, from a volume that outlives its pods or from an object store.",
    Cause.PEER_LOST: "It is not known which rank was lost: look at the machine of each rank, and at the network.",
    Cause.STOPPED: "Find out who sent SIGTERM to the trainer: a script around it, or a liveness probe.",
    Cause.POD_DELETED: "Nothing, if the pod was deleted on purpose.",
    Cause.EVICTED: "Nothing, if the Kubernetes node was drained. If it ran short of memory or disk, set "
    "realistic requests.",
    Cause.PREEMPTED: "Nothing is needed. A higher priority class protects the job from preemption.",
    Cause.NODE_LOST: "Have someone check the Kubernetes node that the message names. New pods avoid it for an hour.",
}
"""What a person can do about each reason, and about each cause of a failure."""

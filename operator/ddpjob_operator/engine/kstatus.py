"""The conditions that tools which wait for any kind of object, such as Flux and Helm, read from a job.

They go by kstatus, which knows two conditions: `Reconciling` (wait for it) and `Stalled` (give up); with neither, an
object is as it should be. https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from ddpjob_operator.api import ConditionType, DDPJobStatus, State
from ddpjob_operator.api.reasons import PASSES

CONDITION_OF: dict[str, ConditionType | None] = {
    State.PENDING: ConditionType.RECONCILING,
    State.QUEUED: ConditionType.RECONCILING,
    State.STARTING: ConditionType.RECONCILING,
    State.RUNNING: None,
    State.STALLED: None,  # For kstatus, "Stalled" means "give up", but this gang restarts or goes on.
    State.RESTARTING: ConditionType.RECONCILING,
    State.SUSPENDING: ConditionType.RECONCILING,
    State.SUSPENDED: None,
    State.SUCCEEDED: None,
    State.FAILED: ConditionType.STALLED,
}
"""The condition that is true in each state."""

CONDITIONS = frozenset({ConditionType.RECONCILING, ConditionType.STALLED})


def kstatus(status: DDPJobStatus) -> ConditionType | None:
    """Which of the two conditions is true, judged by the rest of the status; None if the job is as it should be.

    A job that runs is as it should be, even if something keeps it from growing. A job that is starting or stopping is
    stalled if it is blocked by an obstacle that does not pass.
    """
    stops = status.ending and not status.finished
    condition = ConditionType.RECONCILING if stops else CONDITION_OF[status.state]
    blocked = status.condition(ConditionType.BLOCKED)
    if condition is not ConditionType.RECONCILING or blocked is None or blocked.status != "True":
        return condition
    return ConditionType.RECONCILING if PASSES.get(blocked.reason, False) else ConditionType.STALLED

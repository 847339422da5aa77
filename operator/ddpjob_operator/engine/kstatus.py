"""The kstatus conditions, which Flux, Helm and other tools read when they wait for an object of any kind.

kstatus knows two conditions: `Reconciling` (keep waiting) and `Stalled` (give up). If neither is true, the object is
as it should be. https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from ddpjob_operator.api import ConditionType, DDPJobStatus, State
from ddpjob_operator.api.reasons import PASSES

CONDITION_OF: dict[str, ConditionType | None] = {
    State.PENDING: ConditionType.RECONCILING,
    State.QUEUED: ConditionType.RECONCILING,
    State.STARTING: ConditionType.RECONCILING,
    State.RUNNING: None,
    State.STALLED: None,  # For kstatus, "Stalled" means "give up", but this gang restarts or continues.
    State.RESTARTING: ConditionType.RECONCILING,
    State.SUSPENDING: ConditionType.RECONCILING,
    State.SUSPENDED: None,
    State.SUCCEEDED: None,
    State.FAILED: ConditionType.STALLED,
}
"""The condition that is true in each state."""

CONDITIONS = frozenset({ConditionType.RECONCILING, ConditionType.STALLED})


def kstatus(status: DDPJobStatus) -> ConditionType | None:
    """Returns `Reconciling` or `Stalled`, whichever is true, derived from the rest of the status; None if neither is.

    A running job has neither condition, even if something keeps it from growing. A job that is starting or stopping
    is `Stalled` if it is blocked by an obstacle that will not go away without help.
    """
    stops = status.ending and not status.finished
    condition = ConditionType.RECONCILING if stops else CONDITION_OF[status.state]
    blocked = status.condition(ConditionType.BLOCKED)
    if condition is not ConditionType.RECONCILING or blocked is None or blocked.status != "True":
        return condition
    return ConditionType.RECONCILING if PASSES.get(blocked.reason, False) else ConditionType.STALLED

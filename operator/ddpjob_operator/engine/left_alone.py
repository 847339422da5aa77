"""Jobs that the operator leaves as they are: unfinished jobs of a former version, and jobs that it cannot handle.

The status of such a job explains this to its user. If a job was started by a release with a former version of the
type, this release takes the job over only if the job has finished.
"""

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.api.contract import FORMER_VERSION
from ddpjob_operator.api.reasons import Reason

from .changes import changed
from .conditions import MESSAGE_LENGTH, Obstacle, Say, events, state_of, with_conditions, with_kstatus
from .decision import Decision
from .snapshot import Snapshot
from .view import View

MESSAGE = (
    f"A release with {FORMER_VERSION} of the DDPJob type started this job, and this release cannot continue it. Its "
    "pods stay as they are, and nothing restarts them: delete the job and create it again; it continues from its "
    "checkpoint"
)


def left_alone(snapshot: Snapshot) -> Decision | None:
    """Returns the decision about a job of a former version; None if the job is of this version.

    If the job has finished, its status is converted to this version, and from then on it is treated like any other
    job. If it has not finished, neither its spec nor its bookkeeping can be read completely. So the operator does
    nothing to it, and reports by a condition and an event what the user must do.
    """
    before = snapshot.job.status
    if not before.former:
        return None
    after = changed(before, version=FORMER_VERSION)
    if before.finished:
        return Decision(status=after) if after != before else None
    blocked = _blocked(View(snapshot), after, Obstacle(Reason.FORMER_VERSION, MESSAGE))
    return Decision(status=blocked, events=events(before, blocked)) if blocked != before else Decision()


def blocked_status(snapshot: Snapshot, obstacle: Obstacle) -> DDPJobStatus:
    """Returns the status of a job that the operator cannot handle, with `obstacle` as its only change.

    The job's spec need not be readable.
    """
    return _blocked(View(snapshot), snapshot.job.status, obstacle)


def _blocked(view: View, status: DDPJobStatus, obstacle: Obstacle) -> DDPJobStatus:
    say = Say(ConditionType.BLOCKED, value=True, reason=obstacle.reason, message=obstacle.message)
    generation = view.snapshot.job.metadata.generation
    blocked = changed(
        with_conditions(view, status, say),
        observed_generation=generation,
        state=state_of(status),
        reason=obstacle.reason,
        message=obstacle.message[:MESSAGE_LENGTH],
    )
    return with_kstatus(view, blocked)

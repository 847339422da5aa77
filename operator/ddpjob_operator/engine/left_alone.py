"""Jobs that are left alone, and say so: jobs of a former version of the type, and jobs that cannot be followed.

If a release with a former version of the type began a job, this release takes the job over only if it has finished.
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
    """The decision about a job of a former version; None about any other.

    The status of a finished job is written in the words of this version, and from then on it is a job like all
    others. If the job has not finished, neither its spec nor its remembered state can be read completely. So the
    operator does nothing to it, and tells its user what to do by a condition and an event.
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
    """The status of a job for which nothing can be done; only that is added. The job's spec need not be readable."""
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

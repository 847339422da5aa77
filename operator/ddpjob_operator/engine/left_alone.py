"""Jobs that a release with a former version of the type has begun: what has finished, and what still lives."""

from ddpjob_operator.api import ConditionType, DDPJobStatus
from ddpjob_operator.api.contract import FORMER_VERSION
from ddpjob_operator.api.reasons import Reason

from .changes import changed
from .conditions import Say, events, state_of, with_conditions, with_kstatus
from .decision import Decision
from .snapshot import Snapshot
from .view import View

MESSAGE = (
    f"A release with {FORMER_VERSION} of the type began this job, and this one cannot go on with it. Its pods are "
    "left as they are, and nobody looks after them: delete it and create it again; it goes on from its checkpoint"
)


def left_alone(snapshot: Snapshot) -> Decision | None:
    """What is decided about such a job; None about any other.

    A finished one is written in the words of this version, and is one like all others from then on. Of one that lives
    neither the spec nor what was remembered can be read as a whole: nothing is done to it, and a condition and an
    event say what to do.
    """
    before = snapshot.job.status
    if not before.former:
        return None
    after = changed(before, version=FORMER_VERSION)
    if before.finished:
        return Decision(status=after) if after != before else None
    told = _told(View(snapshot), after)
    return Decision(status=told, events=events(before, told)) if told != before else Decision()


def _told(view: View, status: DDPJobStatus) -> DDPJobStatus:
    say = Say(ConditionType.BLOCKED, value=True, reason=Reason.FORMER_VERSION, message=MESSAGE)
    generation = view.snapshot.job.metadata.generation
    told = changed(
        with_conditions(view, status, say),
        observed_generation=generation,
        state=state_of(status),
        reason=Reason.FORMER_VERSION,
        message=MESSAGE,
    )
    return with_kstatus(view, told)

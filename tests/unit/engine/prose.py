"""What a decision comes to without the words that are for people: `status.state` and `status.message`.

kstatus' conditions repeat the message.
"""

from dataclasses import replace
from typing import Any

from ddpjob_operator.api import DDPJobStatus, State
from ddpjob_operator.engine import Decision, Patch, Snapshot, Tell
from ddpjob_operator.engine.kstatus import CONDITIONS as KSTATUS


def in_other_words(snapshot: Snapshot) -> Snapshot:
    """The same moment of a job whose status says something else to people."""
    status = snapshot.job.status
    state = next(state for state in State if state != status.state)
    said = status.model_copy(update={"message": "Noise", "state": state})
    return replace(snapshot, job=snapshot.job.with_status(said))


def deeds(snapshot: Snapshot, decision: Decision) -> tuple[Any, ...]:
    """What a decision does, and what it will have to remember."""
    actions = [_deed(one) for one in decision.actions]
    status = _without_words(decision.status or snapshot.job.status)
    return status, actions, decision.events, decision.wake_at, decision.needs


def _deed(action: Any) -> Any:
    if isinstance(action, Patch) and isinstance(action.change, Tell):
        conditions = tuple((*said, "") for *said, _ in action.change.conditions)
        return replace(action, change=replace(action.change, conditions=conditions))
    if hasattr(action, "job"):
        return replace(action, job=action.job.with_status(_without_words(action.job.status)))
    return action


def _without_words(status: DDPJobStatus) -> DDPJobStatus:
    conditions = tuple(
        one.model_copy(update={"message": ""}) if one.type in KSTATUS else one for one in status.conditions
    )
    return status.model_copy(update={"message": "", "state": State.PENDING, "conditions": conditions})

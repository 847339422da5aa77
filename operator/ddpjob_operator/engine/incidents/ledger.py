"""Records incidents in the status, and amends the last one when later reports correct it.

`status.incidents` holds the last ten incidents, the newest first, each with facts and judgement in one flat record.
Their costs are included in the totals `status.restarts` and `status.disruptions`, and in the budget.
"""

from dataclasses import dataclass, fields, replace

from ddpjob_operator.api import Budget, ConditionType, DDPJobStatus, Incident, RestartAction
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.status import MAX_INCIDENTS
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.changes import StatusChanges
from ddpjob_operator.engine.supervision import only_rank, progress_of
from ddpjob_operator.engine.view import View

from .crash_loop import fails_at_start, got_further, is_alike_again, is_crash_loop, is_same_again, went_further
from .facts import TAKEN_AWAY, Facts, incident_sentence
from .judgement import BY_DEFAULT, Judgement, grounds, judge
from .price import Price, in_a_row, price_of, refund, too_many_disruptions


@dataclass(frozen=True, slots=True)
class Entry:
    """An incident, ready to be recorded."""

    facts: Facts
    judgement: Judgement
    price: Price
    noted: StatusChanges
    """The fields of the status that record the incident without its cost, for a job that fails because of it."""
    recorded: StatusChanges
    """The fields of the status that record the incident and count its cost."""
    said: str
    """A sentence that describes the incident and its cost."""


def account(view: View, facts: Facts, found: Budget) -> Entry:
    """Judges, prices and records a new incident. `found` is the budget before it."""
    facts = replace(with_rank(view, facts), at_start=fails_at_start(view, facts))
    judgement = judge(view.spec.restart, facts, has_run=view.has_run)
    # The step is filled in only for a free incident. Crash loops are detected from counted incidents, whose steps
    # must be those that the failed attempts themselves reported.
    if facts.step is None and judgement.action is RestartAction.RESTART_FREE:
        facts = replace(facts, step=_step_reached(view))
    # If training has got further since the last incident, the last restart has helped, so the backoff begins anew.
    last = view.status.last_incident
    anew = last is not None and got_further(last, facts, progress_of(view))
    price = price_of(judgement.action, in_a_row(found, 0) if anew else found)
    return _entry(view, facts, judgement, price, view.status.incidents)


def amended(view: View, facts: Facts) -> Entry | None:
    """Changes the last incident to these facts; None if it is already recorded with them.

    Judgement and price stay as they were when the incident happened, even if rules or budget have changed since,
    unless a fact that they depend on has changed. If the incident was answered by a new attempt, it is never charged
    afterwards, and its restart is refunded only if the job may have another disruption.
    """
    status, restart, facts = view.status, view.spec.restart, with_rank(view, facts)
    known = status.last_incident
    assert known is not None, "it is about the last incident"
    judgement, price = Judgement.of(known), Price(status.bookkeeping.budget)
    if grounds(facts) != grounds(Facts.of(known)):
        judged, refunded = judge(restart, facts, has_run=view.has_run), refund(status.bookkeeping.budget)
        free = judged.action is RestartAction.RESTART_FREE
        allowed = free and not too_many_disruptions(restart, refunded.budget)
        if not was_answered(view) or judged.action in {known.action, RestartAction.FAIL} or allowed:
            judgement = judged
        was_counted = known.action is RestartAction.RESTART and status.restarts > 0
        if was_answered(view) and was_counted and judgement.action is RestartAction.RESTART_FREE:
            price = refunded
    if (facts, judgement) == (Facts.of(known), Judgement.of(known)):
        return None
    return _entry(view, facts, judgement, price, status.incidents[1:])


def with_rank(view: View, facts: Facts) -> Facts:
    """Adds the rank to facts without one, if the node has only one process and its rank is known."""
    return facts if facts.rank is not None else replace(facts, rank=only_rank(view, facts.node, facts.attempt))


def as_recorded(view: View, known: Incident) -> Entry:
    """Returns the last incident as it is recorded."""
    status = view.status
    return _entry(view, Facts.of(known), Judgement.of(known), Price(status.bookkeeping.budget), status.incidents[1:])


def excused(view: View, entry: Entry, found: Budget) -> Entry | None:
    """Records that the incident that was about to end the job was a disruption, so that the job can continue.

    Returns None if the limit on disruptions does not allow that. `found` is the budget before the incident, because a
    restart that would exceed the limit is never charged.
    """
    price = price_of(RestartAction.RESTART_FREE, found)
    if too_many_disruptions(view.spec.restart, price.budget):
        return None
    return _entry(view, entry.facts, entry.judgement, price, view.status.incidents[1:])


def noted(view: View, facts: Facts, judgement: Judgement) -> StatusChanges:
    """Returns the fields of the status that record a new incident without a cost."""
    return _noted(with_rank(view, facts), judgement, view.status.incidents)


def was_answered(view: View) -> bool:
    """Whether a restart followed the last incident."""
    known = view.status.last_incident
    return known is not None and view.status.attempt > known.attempt


def final(view: View, entry: Entry) -> tuple[str, str] | None:
    """Returns reason and message of the job's failure, if it has to fail after a new incident; else None."""
    restart, facts, budget = view.spec.restart, entry.facts, entry.price.budget
    rule, sentence = entry.judgement.rule, incident_sentence(facts, view.called)
    instead = view.snapshot.settings.no_restarts
    match entry.judgement.action:
        case RestartAction.FAIL:
            return facts.cause, sentence if rule == BY_DEFAULT else f"{sentence} ({rule} says Fail)"
        case RestartAction.RESTART_FREE:
            if not too_many_disruptions(restart, budget):
                return None
            limit = instead or f"more than {counted(restart.max_disruptions or 0, 'disruption')} (maxDisruptions)"
            return Reason.MAX_DISRUPTIONS_EXCEEDED, f"{sentence}; {limit}"
    if budget.used > restart.max_restarts:
        limit = instead or f"no restarts left (maxRestarts: {restart.max_restarts})"
        return Reason.MAX_RESTARTS_EXCEEDED, f"{sentence}; {limit}"
    why = _why_in_vain(view, entry)
    return (Reason.CRASH_LOOP, f"{sentence}; {why}") if why else None


def _why_in_vain(view: View, entry: Entry) -> str:
    """Why another restart would not help, if the new incident is part of a crash loop; else empty."""
    facts, judgement = entry.facts, entry.judgement
    if is_crash_loop(view.status, facts, progress_of(view)):
        furthest = view.status.incidents[1].step  # The first of the three: the present incident is not listed yet.
        return f"three times in a row training got no further than step {furthest}"
    if is_alike_again(view.status, facts, judgement):
        after = counted(facts.steps_since_restart or 0, "step")
        return f"the same error after {after} of each of the last three attempts"
    if is_same_again(view, facts, judgement):
        return "the same error twice in a row before the first step: another restart would not help"
    return ""


def culprit(status: DDPJobStatus) -> str:
    """Returns the name of the pod whose failure ended the gang; empty if there is none, or if the pod was taken away.

    This pod, which may still be running, is not deleted, so that its log is kept.
    """
    known, restarting = status.last_incident, status.condition(ConditionType.RESTARTING)
    if known is None or known.cause in TAKEN_AWAY:
        return ""
    # If the condition has another reason, the gang is starting again because of something else, such as a new size.
    starts_again = restarting is not None and (restarting.status, restarting.reason) == ("True", known.cause)
    return known.pod if starts_again or status.is_true(ConditionType.FAILURE_TARGET) else ""


def _entry(view: View, facts: Facts, judgement: Judgement, price: Price, older: tuple[Incident, ...]) -> Entry:
    changes = _noted(facts, judgement, older)
    counts = judgement.action is RestartAction.RESTART
    cost = f"restart {price.budget.used} of {view.spec.restart.max_restarts}" if counts else "restart (not counted)"
    paid: StatusChanges = {**changes, **price.paid(view.status)}
    return Entry(facts, judgement, price, changes, paid, f"{incident_sentence(facts, view.called)}; {cost}")


def _noted(facts: Facts, judgement: Judgement, older: tuple[Incident, ...]) -> StatusChanges:
    known = {field.name: getattr(facts, field.name) for field in fields(facts)}
    incident = Incident(**known, action=judgement.action, rule=judgement.rule)
    return {"incidents": (incident, *older)[:MAX_INCIDENTS]}


def _step_reached(view: View) -> int | None:
    """Returns the step that training has reached, for a pod that reports none. The step never decreases."""
    last, progress = view.status.last_incident, progress_of(view)
    if last is None or last.step is None:
        return None if progress is None else progress.step
    return progress.step if progress and went_further(progress, last.step, last.time) else last.step

"""What an incident costs, and whether the job can go on after it."""

from ddpjob_operator.api import Budget, Incident, RestartAction
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted
from ddpjob_operator.engine.changes import StatusChanges, amended
from ddpjob_operator.engine.supervision import progress_of
from ddpjob_operator.engine.view import View

from .crash_loop import fails_at_start, is_same_again
from .facts import got_further, is_crash_loop, told, went_further
from .judgement import ruled
from .price import charged, in_a_row, too_many_disruptions


def judged(view: View, incident: Incident) -> Incident:
    """A new incident, with what is to be done about it."""
    known = amended(incident, at_start=fails_at_start(view, incident))
    found = ruled(view.spec.restart, known, has_run=view.has_run)
    if found.step is None and found.action is RestartAction.RESTART_FREE:
        return amended(found, step=_step_reached(view))
    return found


def _step_reached(view: View) -> int | None:
    """How far training had come by now, of which a pod that is taken away says nothing: at least as far as before."""
    last, progress = view.status.last_failure, progress_of(view)
    if last is None or last.step is None:
        return None if progress is None else progress.step
    return progress.step if progress and went_further(progress, last.step, last.time) else last.step


def charge(view: View, incident: Incident, found: Budget) -> Budget:
    """The budget after an incident that found it like this.

    Where training has got further since the last one, that was answered well: the backoff begins anew.
    """
    last = view.status.last_failure
    anew = last is not None and got_further(last, incident, progress_of(view))
    return charged(in_a_row(found, 0) if anew else found, incident.action)


def counts(view: View, incident: Incident, budget: Budget) -> StatusChanges:
    """The fields of the status that count what an incident has cost; `budget` is charged with it already."""
    restarted = incident.action is RestartAction.RESTART
    return {
        "restarts": view.status.restarts + restarted,
        "disruptions": view.status.disruptions + (not restarted),
        "budget": budget,
    }


def cost(view: View, incident: Incident, budget: Budget) -> str:
    """The same in words."""
    restarted = incident.action is RestartAction.RESTART
    return f"restart {budget.used} of {view.spec.restart.max_restarts}" if restarted else "restart not counted"


def why_final(view: View, incident: Incident, budget: Budget) -> tuple[str, str] | None:
    """Reason and message where the job cannot go on after an incident."""
    restart, said = view.spec.restart, told(incident)
    if incident.action is RestartAction.FAIL:
        return incident.cause, said if incident.rule == "default" else f"{said} ({incident.rule} says Fail)"
    if incident.action is RestartAction.RESTART_FREE:
        message = f"{said}; more than {counted(restart.max_disruptions or 0, 'disruption')} (maxDisruptions)"
        return (Reason.MAX_DISRUPTIONS_EXCEEDED, message) if too_many_disruptions(restart, budget) else None
    if budget.used > restart.max_restarts:
        return Reason.MAX_RESTARTS_EXCEEDED, f"{said}; no restart is left of {restart.max_restarts} (maxRestarts)"
    if is_crash_loop(view.status, incident, progress_of(view)):
        furthest = view.status.history[1].step
        return Reason.CRASH_LOOP, f"{said}; three times in a row training got no further than step {furthest}"
    if is_same_again(view, incident):
        return Reason.CRASH_LOOP, f"{said}; the same error in a row before any step: trying again does not help"
    return None

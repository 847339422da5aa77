"""Interprets the reports of a gang's supervisors in the engine's terms."""

from datetime import datetime, timedelta

from ddpjob_operator.api import Cause, CheckpointSeen, ConditionType, DDPJobStatus, Progress, Steps, Straggler
from ddpjob_operator.api.job import domain_key
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.text.foreign_json import parsed_object

from .changes import StatusChanges, changed
from .code_in_place import new_code_failed, reported_code
from .conditions import Say, with_conditions
from .manifests.volumes import lost_with_pods
from .reports import FinalReport, Phase, Stall, SupervisorReport, last_words_of
from .snapshot import Pod
from .starting_over import remembered, start_over_message
from .view import View

SILENT_AFTER = timedelta(seconds=30)
"""How long rank 0's supervisor may be silent before the job's progress counts as unknown."""

MEMBER_LOST_AFTER = timedelta(seconds=60)
"""A supervisor whose pod runs counts as lost after rank 0's supervisor has waited for it for this long. Rank 0's
supervisor counts as lost after the others have waited for it for this long. By then Kubernetes, too, has found out
whether the Kubernetes node is lost."""

COMING_UP = frozenset({Phase.GATHERING, Phase.PREFLIGHT, Phase.STOPPING})
"""The phases in which no rank trains."""

STOPPED = {"eta_seconds": None, "activity": None, "activity_time": None}
"""The fields of the progress that hold only while the gang runs, with their values at other times."""

NO_RESULT: StatusChanges = {"result": None, "result_place": None}
"""A gang that starts again will have another result, and a job that fails has none."""


def comes_up(view: View) -> bool:
    """Whether the supervisors are still preparing the attempt that follows an incident.

    False if rank 0's supervisor does not answer.
    """
    status, report = view.status, view.report
    if not (status.bookkeeping.supervised and status.is_true(ConditionType.RESTARTING)) or is_silent(view):
        return False
    # A report of an older attempt was read before this attempt began.
    return report is None or report.attempt < status.attempt or report.phase in COMING_UP


def missed(view: View) -> str:
    """Returns the message that rank 0's supervisor is waiting for other supervisors; empty if it is not."""
    report = view.report
    if report is None or report.phase is not Phase.GATHERING or not report.missing:
        return ""
    called = view.called if len(report.missing) == 1 else f"{view.called}s"
    return f"Rank 0's supervisor is waiting for {called} {', '.join(map(str, report.missing))}"


def lost_at(view: View) -> dict[int, datetime]:
    """Returns, by node, when nodes that run without a connected supervisor will count as lost."""
    first = _first_lost_at(view)
    limits = {} if first is None else {0: first}
    report = view.report
    # While rank 0's supervisor does not answer, its last report does not show who is missing now.
    if report is None or report.error or report.phase is not Phase.GATHERING:
        return limits
    missing = {node: view.current[node] for node in report.missing if node > 0 and node in view.current}
    return limits | {node: _limit(report.since, pod) for node, pod in missing.items() if pod.running}


def _first_lost_at(view: View) -> datetime | None:
    """Returns when rank 0 will count as lost, or None.

    It is lost if its supervisor does not answer the operator and others still wait for it although all pods run.
    """
    silent, witness = silent_at(view), view.snapshot.witness
    # If a pod does not run, the others may be waiting for that pod.
    if silent is None or view.now < silent or witness is None or witness.error or view.running < view.nodes:
        return None
    return _limit(witness.since, *view.current.values()) if witness.phase is Phase.GATHERING else None


def _limit(since: datetime, *pods: Pod) -> datetime:
    """Adds MEMBER_LOST_AFTER to `since` or to the latest start of these pods, whichever is later."""
    times = (time for pod in pods for time in (pod.started_at, pod.scheduled_at, pod.created_at))
    return max((since, *(time for time in times if time is not None))) + MEMBER_LOST_AFTER


def members_lost(view: View) -> tuple[int, ...]:
    """Returns the nodes whose pods run, but whose supervisors have been missing for too long."""
    return tuple(node for node, limit in lost_at(view).items() if view.is_due(limit))


def silent_at(view: View) -> datetime | None:
    """Returns when the job's progress will become unknown unless rank 0's supervisor answers first."""
    return None if view.unreported_since is None else view.unreported_since + SILENT_AFTER


def is_silent(view: View) -> bool:
    """Whether rank 0's supervisor has not answered for SILENT_AFTER, although its pod runs."""
    limit = silent_at(view)
    return limit is not None and view.now >= limit


def awaits_first_report(view: View) -> bool:
    """Whether the supervisor's report was read only by a previous operator, whose status may still be true."""
    first = view.current.get(0)
    return view.supervised and view.report is None and first is not None and first.running and not is_silent(view)


def supervision_message(view: View) -> str:
    """Summarises what supervisors report about a running gang; empty if they report only that it runs."""
    said = view.status.condition(ConditionType.TRAINING_STALLED)
    if awaits_first_report(view) and said is not None and said.status == "True":
        return said.message
    stall = stall_of(view)
    return _stall_message(view, stall) if stall else missed(view)


def unreachable_message(view: View) -> str:
    """Returns why rank 0's supervisor has not answered for QUIET_AFTER; empty if it has answered."""
    report, limit = view.snapshot.report, view.quiet_at
    return report.error if report is not None and limit is not None and view.now >= limit else ""


def only_rank(view: View, node: int, attempt: int) -> int | None:
    """Returns the rank of a node's only process in an attempt; None if it is unknown or there are more processes."""
    if view.status.procs_per_node != 1:
        return None
    if domain_key(view.snapshot.job) is None:
        return node
    report = view.report
    if report is None or report.attempt != attempt or report.order is None:
        return None
    if not report.order:  # An empty order means that ranks follow the nodes' numbers.
        return node
    return report.order.index(node) if node in report.order else None


def stall_of(view: View) -> Stall | None:
    """Returns the gang's stall, if the supervisors report one. The last report of a silent supervisor is ignored."""
    report, first = view.report, view.current.get(0)
    if report is None or report.attempt < view.status.attempt or first is None or not first.running:
        return None
    return None if is_silent(view) else report.stall


def delay_message(view: View) -> str:
    """Returns the message that the first step of a running attempt is late; empty if it is not late."""
    said, report = view.status.condition(ConditionType.AWAITING_FIRST_STEP), view.report
    if awaits_first_report(view):
        return "" if said is None or said.status != "True" else f"{said.message[:1].lower()}{said.message[1:]}"
    return "" if report is None or report.attempt < view.status.attempt or is_silent(view) else report.delay


def stopped_message(view: View) -> str:
    """Which ranks of a running attempt are stopped by a signal or a debugger, in a sentence; empty if none is."""
    report = view.report
    return "" if report is None or report.attempt < view.status.attempt or is_silent(view) else report.stopped


def hold_message(view: View) -> str:
    """What a held gang does, in a clause; empty if the gang is not held, or rank 0's supervisor is silent."""
    report = view.report
    return "" if report is None or is_silent(view) else report.hold


def with_reports(view: View, status: DDPJobStatus) -> DDPJobStatus:
    """Returns the status with the supervisors' reports, and with a condition if rank 0's supervisor is silent."""
    if view.status.finished:
        return status
    runs = status.is_true(ConditionType.RUNNING) and not status.ending
    # An operator that has just started keeps the previous operator's conditions until a supervisor answers.
    if not (runs and awaits_first_report(view)):
        silence = view.snapshot.report if runs and is_silent(view) else None
        stall = stall_of(view) if runs else None
        delay = delay_message(view) if runs else ""
        status = with_conditions(view, status, _stalled(view, stall), _awaiting(delay), _unknown(silence))
    reported = _reported(view, status)
    says = (*_loss(_remembering(view)), *_beginning(view, status), *new_code_failed(view, reported["code"]))
    return changed(with_conditions(view, status, *says), **reported)


def training_warning(view: View) -> str:
    """Returns a warning if the training of a running gang started over or its loss is not finite; otherwise empty."""
    progress, said = _remembering(view), new_start_over_message(view)
    over = view.status.is_true(ConditionType.STARTED_OVER) if said is None else bool(said)
    words = (
        "training started over" if over else "",
        _loss_clause(progress) if progress is not None and progress.loss_not_finite else "",
    )
    return "; ".join(filter(None, words))


def new_start_over_message(view: View) -> str | None:
    """Returns the message that the attempt started over; empty if it did not, None if it has no new first step.

    Programs that run one after the other in a held gang have nothing to go on with.
    """
    if view.report is not None and view.report.hold:
        return None
    reported = [incident.step for incident in view.status.incidents if incident.step is not None]
    before, steps = view.status.progress, view.status.bookkeeping.steps
    return start_over_message(before, steps, progress_of(view), view.spec.checkpoint, reported)


def _beginning(view: View, status: DDPJobStatus) -> tuple[Say, ...]:
    """Returns the condition StartedOver, if the attempt's first step is new and the status counts the attempt."""
    said, kind = new_start_over_message(view), ConditionType.STARTED_OVER
    if said is None or _is_ahead(view, status):
        return ()
    if said:
        return (Say(kind, value=True, reason=Cause.STARTED_OVER, message=said),)
    return (
        Say(kind, value=False, reason=Reason.WENT_ON, message="The last attempt started where it was meant to start"),
    )


def _is_ahead(view: View, status: DDPJobStatus) -> bool:
    """Whether the progress belongs to an attempt that only the next round will report on."""
    progress, attempt = progress_of(view), view.status.attempt
    return progress is not None and (progress.attempt or 0) > attempt and status.attempt > attempt


def _loss(progress: Progress | None) -> tuple[Say, ...]:
    """Returns the condition LossNotFinite. If no loss is reported, the condition stays as it is."""
    kind = ConditionType.LOSS_NOT_FINITE
    if progress is not None and progress.loss_not_finite:
        clause = _loss_clause(progress)
        return (Say(kind, value=True, reason=Reason.NOT_FINITE, message=f"T{clause[1:]}"),)
    if progress is not None and progress.loss is not None:
        return (Say(kind, value=False, reason=Reason.FINITE, message="The loss is finite"),)
    return ()


def _loss_clause(progress: Progress) -> str:
    since = progress.loss_not_finite_since_step
    if since is None:
        return f"the loss is {progress.loss_not_finite}"
    return f"the loss has been {progress.loss_not_finite} since step {since} or earlier"


def _remembering(view: View) -> Progress | None:
    """Returns the latest progress, combined with facts from earlier reports that only the status still holds."""
    progress, before = progress_of(view), view.status.progress
    if progress is None or progress is before:
        return progress
    if before is not None and before.recounts:
        progress = progress.model_copy(update={"recounts": True})
    if not progress.loss_not_finite or progress.loss_not_finite_since_step is not None:
        return progress
    since = before.loss_not_finite_since_step if before is not None and before.loss_not_finite else progress.step
    return progress.model_copy(update={"loss_not_finite_since_step": since})


def _steps(view: View) -> Steps:
    """Returns the steps to remember from all attempts."""
    known, progress = view.status.bookkeeping.steps, progress_of(view)
    if progress is None or progress is view.status.progress:
        return known
    saved, report = _last_words(view).checkpoint, view.report
    time = report.at if report and progress != view.status.progress else known.time
    seen = saved or (report.checkpoint if report else None)
    return remembered(known, progress, seen.step if seen else None, time)


def _stalled(view: View, stall: Stall | None) -> Say:
    kind = ConditionType.TRAINING_STALLED
    if stall is None:
        return Say(kind, value=False, reason=Reason.UNSTALLED, message="No stall is reported")
    return Say(kind, value=True, reason=Cause.STALLED, message=_stall_message(view, stall))


def _stall_message(view: View, stall: Stall) -> str:
    """Describes a stall in a sentence, with the host of the node that is to blame."""
    pod = view.current.get(stall.node) if stall.node is not None else None
    where = f" ({view.snapshot.settings.host} {pod.node_name})" if pod and pod.node_name else ""
    return f"Training has stalled: {stall.message or 'the supervisors are looking for the reason'}{where}"


def _awaiting(delay: str) -> Say:
    kind = ConditionType.AWAITING_FIRST_STEP
    if not delay:
        return Say(kind, value=False, reason=Reason.STEP_SEEN, message="The first step is not late")
    return Say(kind, value=True, reason=Reason.NO_STEP_SEEN, message=f"{delay[:1].upper()}{delay[1:]}")


def _unknown(silence: SupervisorReport | None) -> Say:
    kind = ConditionType.PROGRESS_UNKNOWN
    if silence is None:
        return Say(kind, value=False, reason=Reason.SUPERVISOR_HEARD, message="Rank 0's supervisor answers")
    return Say(kind, value=True, reason=Reason.SUPERVISOR_SILENT, message=silence.error)


def _reported(view: View, status: DDPJobStatus) -> StatusChanges:
    """Returns the fields of the status that hold the supervisors' reports, unchanged if there is no new report."""
    report, runs = view.report, status.is_true(ConditionType.RUNNING)
    same_gang = status.attempt == view.status.attempt
    progress, last = _remembering(view), _last_words(view)
    ahead = _is_ahead(view, status)
    progress = view.status.progress if ahead else progress
    stragglers = status.stragglers if runs else ()
    if report and runs and report.attempt >= status.attempt:
        stragglers = _stragglers(view, report)
    return {
        # If the present decision starts the gang again, the report is from the previous gang.
        "supervised": status.bookkeeping.supervised or (same_gang and report is not None),
        "progress": progress if runs or progress is None else progress.model_copy(update=STOPPED),
        "steps": status.bookkeeping.steps if ahead else _steps(view),
        "checkpoint": _checkpoint(view, status, last.checkpoint),
        **(_result(view, last) if same_gang and not status.is_true(ConditionType.FAILURE_TARGET) else NO_RESULT),
        "stragglers": stragglers,
        "code": reported_code(view, status, report if runs else None),
    }


def _result(view: View, last: FinalReport) -> StatusChanges:
    """Returns the result of rank 0's pod, or what the status says, if that pod has not ended or is gone.

    It is kept while other nodes still finish, because rank 0's pod may be gone by the time the job succeeds.
    """
    if last.result is None and last.result_place is None:
        return {"result": view.status.result, "result_place": view.status.result_place}
    return {"result": last.result, "result_place": last.result_place}


def progress_of(view: View) -> Progress | None:
    """Returns the latest progress: from the end of rank 0's pod, else from its supervisor, else from the status.

    A held gang has only the progress of the program that runs: each program begins anew.
    """
    report, before = view.report, view.status.progress
    said = report.progress if report is not None else None
    return _last_words(view).progress or said or (None if report is not None and report.hold else before)


def _last_words(view: View) -> FinalReport:
    """Returns rank 0's final report, which may be seconds newer than the last report from its status page."""
    first = view.current.get(0)
    if first is None or first.exit is None:
        return FinalReport()
    return last_words_of(parsed_object(first.exit.message), first.exit.finished_at or view.now)


def _checkpoint(view: View, status: DDPJobStatus, last: CheckpointSeen | None) -> CheckpointSeen | None:
    """Returns the last checkpoint, unless it was lost with rank 0's former pod."""
    if view.spec.checkpoint and 0 not in view.with_status(status).current and lost_with_pods(view.spec):
        return None
    report = view.report
    return last or (report.checkpoint if report and report.checkpoint else status.checkpoint)


def _stragglers(view: View, report: SupervisorReport) -> tuple[Straggler, ...]:
    names = {node: pod.node_name for node, pod in view.current.items()}
    return tuple(
        Straggler(node=slow.node, node_name=names.get(slow.node), slowdown=slow.slowdown)
        for slow in report.stragglers
    )

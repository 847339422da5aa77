"""A job in full, in words: its state and the reason for it, its incidents, and its remaining budget and time."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from ddpjob_operator.api import (
    NO_DEFAULTS,
    AvoidedNodeName,
    Cause,
    ConditionType,
    DDPJob,
    DDPJobStatus,
    Incident,
    RequestState,
    RestartAction,
    State,
)
from ddpjob_operator.api.git_state import GitState
from ddpjob_operator.api.reasons import ADVICE, Reason
from ddpjob_operator.api.words import age, counted, duration, restarts, world
from ddpjob_operator.engine import (
    called,
    deadline,
    expiry,
    history_of,
    present_budget,
    start_deadline,
    with_defaults,
)

from .logged_progress import LoggedProgress
from .losses import last_loss, loss_in
from .masking import without_secrets

WARNINGS = (
    *(ConditionType.BLOCKED, ConditionType.TRAINING_STALLED, ConditionType.PROGRESS_UNKNOWN),
    *(ConditionType.LOSS_NOT_FINITE, ConditionType.STARTED_OVER, ConditionType.NEW_CODE_FAILED),
)
"""Conditions that report a problem with a job that has not failed."""

NOTHING_NEW = ("Nothing", "Read `ddpjob logs NAME`", "Read the message", "Fix what the message names")
"""The beginnings of advice that adds nothing to the job's message and the line about its logs."""

TENTH, HUNDRED = 0.1, 100.0

RESULT_CHARS = 200
"""How much of a result is shown. `-o json` shows all of it."""

NO_MORE = frozenset({Reason.MAX_RESTARTS_EXCEEDED, Reason.MAX_DISRUPTIONS_EXCEEDED, Reason.CRASH_LOOP})
"""The reasons in the condition Failed if a limit kept the job from being restarted after its last incident."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a description shows in addition to the contents of the DDPJob object."""

    made: datetime | None = None
    """When the job was created. If this is None, the job's age is counted from its start."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Lines to print below the job's name, by label."""
    links: Mapping[str, str | None] = field(default_factory=dict)
    """Paths, addresses and commands that lead to more information, by label."""
    logged: LoggedProgress | None = None
    """What the job's log shows, if it has been read."""
    results: str = ""
    """Where a large result is if the job keeps no history."""


def lines_of(job: DDPJob, now: datetime, around: Around, *, wide: bool = False) -> dict[str, str]:
    """The present state of a job, each text only once, by label. `wide`: the tables have all incidents in full."""
    lines: dict[str, object] = {
        "Name": job.metadata.name,
        **around.where,
        **({"Code": git} if (git := GitState.of(job.metadata.annotations or {})) else {}),
        **({"New code": code.replaced} if (code := job.status.code) and code.replaced else {}),
        **_doing(job, now),
        **_training(job, now, around),
        **_left(job, now),
        "Age": age(around.made or job.status.start_time, now),
        **_last_incident(job, wide=wide),
        **({"Advice": advice} if (advice := advice_on(job)) else {}),
    }
    return {label: without_secrets(str(value)) for label, value in lines.items()}


def tables_of(job: DDPJob, now: datetime, *, wide: bool = False) -> dict[str, list[tuple[str, str]]]:
    """The rows of each table below these lines, by its heading: time and place, and what was the case."""
    tables = {"Incidents": _incidents, "Conditions": _conditions} if wide else {"Earlier incidents": _earlier}
    return {
        heading: [(place, without_secrets(text)) for place, text in rows(job, now)]
        for heading, rows in tables.items()
    }


def _doing(job: DDPJob, now: datetime) -> dict[str, object]:
    """State, message, backoff and size of a job."""
    status = job.status
    wait = math.ceil(((status.backoff_until or now) - now).total_seconds())
    size = (
        f"{world(status.nodes, status.procs_per_node)}, {status.backend}"
        if status.nodes and status.procs_per_node
        else ""
    )
    wanted = f" ({job.spec.nodes} wanted)" if status.nodes != job.spec.nodes and not status.finished else ""
    return {
        "State": status.state,
        "Message": status.message,
        **({"Warning": warning} if (warning := "; ".join(_warnings(status))) else {}),
        **({"Backoff": f"{duration(wait)} left"} if wait > 0 and not status.finished else {}),
        "Ready": status.display.ready,
        "Attempt": status.attempt,
        "World": size + wanted if size else "not started",
    }


def cause_first(status: DDPJobStatus) -> str:
    """The job's message; if it is about the last incident, it begins with what happened, before who failed.

    Example:
        `Rank 1 failed: Application: ValueError: no; restart 1 of 6` becomes `ValueError: no; rank 1 failed; restart 1
        of 6`, and `Rank 1 failed: OutOfMemory: killed by SIGKILL` becomes `OutOfMemory: killed by SIGKILL; rank 1
        failed`.
    """
    incident = status.last_incident
    what = f"{incident.cause}: {incident.message}" if incident else ""
    who, found, rest = status.message.partition(f": {what}")
    if not (what and found and who):
        return status.message
    return f"{what.removeprefix(f'{Cause.APPLICATION}: ')}; {who.lower()}{rest}"


def _warnings(status: DDPJobStatus) -> Iterator[str]:
    """The conditions that report a problem, except those whose text is already part of the job's message."""
    for kind in WARNINGS:
        said = status.message_while_true(kind)
        if said and said.lower() not in status.message.lower():
            yield f"{kind}: {said}"


def _training(job: DDPJob, now: datetime, around: Around) -> dict[str, object]:
    """Progress, speed, last checkpoint and stragglers, as supervisors report them. The loss may come from the log."""
    status, logged = job.status, around.logged
    saved = status.checkpoint
    when = f", {age(saved.time, now)} ago" if saved and saved.time else ""
    lines = {
        "Progress": ", ".join([*how_far(status), *_resumed(status), *between_steps(status), *_awaited(job, now)]),
        "Loss": (last_loss(status, logged) or "") if logged and not loss_in(status) else "",
        "Speed": ", ".join(_how_fast(job, now)),
        "Checkpoint": f"step {saved.step}{when}" if saved else "",
        "Request": _request(status, now),
        "Stragglers": "" if status.finished else ", ".join(slow_nodes(job)),
        "Result": _result(job, around.results),
    }
    return {name: line for name, line in lines.items() if line}


def slow_nodes(job: DDPJob) -> list[str]:
    """The stragglers of a job, in words, the slowest first: `rank 3 on node-a (2.5 x)`."""
    slow = job.status.stragglers
    return [f"{called(job)} {one.node} on {one.node_name or '?'} ({one.slowdown:g} x)" for one in slow]


def _result(job: DDPJob, results: str) -> str:
    """The job's result, or where it is; empty if there is none."""
    status, history = job.status, history_of(job)
    if status.result is not None:
        return status.result if len(status.result) <= RESULT_CHARS else f"{status.result[:RESULT_CHARS]}…"
    # Without a history, it is in the directory of a run on this machine.
    return f"in {history or results}/{status.result_place}" if status.result_place else ""


def _request(status: DDPJobStatus, now: datetime) -> str:
    """The outcome of the last request for a checkpoint; empty if it was fulfilled, or there was none."""
    asked = status.requested_checkpoint
    if asked is None or asked.state == RequestState.SAVED:
        return ""
    when = f"{age(asked.time, now)} ago"
    if asked.state == RequestState.NOT_SAVED:
        return f"a checkpoint, {when}: not saved: {asked.message}"
    return f"a checkpoint, {when}: not complete yet"


def how_far(status: DDPJobStatus) -> Iterator[str]:
    """The known parts of the job's progress, in words."""
    progress = status.progress
    if progress is None:
        return
    if progress.percent is not None or progress.steps_since_restart is not None:
        yield status.display.progress
    if progress.step is not None:
        yield f"step {progress.step} of {progress.total_steps}" if progress.total_steps else f"step {progress.step}"
    if progress.epoch is not None:
        yield f"epoch {progress.epoch}"
    if loss := loss_in(status):
        yield f"loss {loss}"
    if status.display.eta and not status.finished:
        yield f"{status.display.eta} left"
    if status.is_true(ConditionType.STARTED_OVER):
        yield "started over"


def _resumed(status: DDPJobStatus) -> Iterator[str]:
    """The step after which the present attempt resumed, if the program reports that it has loaded a checkpoint."""
    progress = status.progress
    if progress is not None and progress.begins == "FromCheckpoint" and progress.first_step is not None:
        yield f"resumed after step {progress.first_step - 1}"


def between_steps(status: DDPJobStatus) -> Iterator[str]:
    """What the job does between two steps, such as `evaluating`, if it is not training."""
    if status.progress is not None and status.progress.activity and not status.finished:
        yield status.progress.activity.lower()


def _awaited(job: DDPJob, now: datetime) -> Iterator[str]:
    """A notice that the present attempt has not finished a step yet, if a supervisor can tell."""
    if is_before_first_step(job):
        yield waiting(job.status, now)


def is_before_first_step(job: DDPJob) -> bool:
    """Whether the present attempt runs and has not finished a step yet, as far as a supervisor can tell.

    A held job, in which perhaps no program runs, says itself what it does: in its message.
    """
    status = job.status
    if status.state is not State.RUNNING or not status.bookkeeping.supervised or job.spec.held:
        return False
    unclear = any(map(status.is_true, (ConditionType.PROGRESS_UNKNOWN, ConditionType.AWAITING_FIRST_STEP)))
    return not unclear and last_step(status) is None


def waiting(status: DDPJobStatus, now: datetime) -> str:
    """`waiting for the first step of attempt 2 (8s)`, with the time since all ranks have been running."""
    running = status.condition(ConditionType.RUNNING)
    attempt = f" of attempt {status.attempt}" if status.attempt > 1 else ""
    since = f" ({age(running.last_transition_time, now)})" if running and running.status == "True" else ""
    return f"waiting for the first step{attempt}{since}"


def last_step(status: DDPJobStatus) -> datetime | None:
    """When the present attempt finished its last step, as its supervisor reports; None if it finished none."""
    progress = status.progress
    return progress.last_step_time if progress is not None and progress.attempt in {None, status.attempt} else None


def _how_fast(job: DDPJob, now: datetime) -> Iterator[str]:
    progress = job.status.progress
    if progress is None or job.status.finished:
        return
    if progress.samples_per_second is not None:
        yield f"{progress.samples_per_second:,.0f} samples/s"
    if progress.step_seconds:
        yield f"{pace(progress.step_seconds)} per step"
    if progress.slowest_node is not None:
        yield f"{called(job)} {progress.slowest_node} is the slowest"
    if progress.last_step_time is not None:
        yield f"last step {age(progress.last_step_time, now)} ago"


def pace(seconds: float) -> str:
    """The time of one step: `12 ms`, `0.21 s`, `5m30s`."""
    if seconds >= HUNDRED:
        return duration(round(seconds))
    unit, number = ("s", seconds) if seconds >= TENTH else ("ms", 1000 * seconds)
    return f"{float(f'{number:.2g}'):g} {unit}"


def _left(job: DDPJob, now: datetime) -> dict[str, object]:
    """Used and remaining restart budget and time, and the nodes that the job avoids."""
    status, restart = job.status, job.spec.restart
    used = present_budget(job.spec, status, now)
    left = f"{max(0, restart.max_restarts - used.used)} of {counted(restart.max_restarts, 'restart')}"
    if restart.max_disruptions is not None:
        free = max(0, restart.max_disruptions - used.disruptions)
        left += f" and {free} of {counted(restart.max_disruptions, 'disruption')}"
    deadlines = ", ".join(_deadlines(job, now))
    avoided = [_avoided(node, now) for node in status.avoided_node_names if node.until > now]
    return {
        "Restarts": restarts(status.restarts, status.disruptions),
        "Budget": f"{left} left within {duration(restart.window_seconds)} of healthy running",
        **({"Deadline": deadlines} if deadlines else {}),
        **({"Avoids": ", ".join(avoided)} if avoided and not status.finished else {}),
    }


def _avoided(node: AvoidedNodeName, now: datetime) -> str:
    """A Kubernetes node that the job avoids: for how long, whether that is only a preference, and why."""
    strictness, why = "" if node.required else " if possible", f" ({node.cause})" if node.cause else ""
    return f"{node.node_name} for {_until(node.until, now)}{strictness}{why}"


def _deadlines(job: DDPJob, now: datetime) -> Iterator[str]:
    spec = with_defaults(job, job.status.defaults or NO_DEFAULTS).spec
    if job.status.finished:
        times = {"deleted ": ("ttlSecondsAfterFinished", expiry(spec, job.status))}
    else:
        times = {
            "": ("activeDeadlineSeconds", deadline(spec, job.status)),
            "to run ": ("startDeadlineSeconds", start_deadline(spec, job.status)),
        }
    for prefix, (name, time) in times.items():
        if time is not None:
            yield f"{prefix}in {_until(time, now)} ({name})"


def _until(time: datetime, now: datetime) -> str:
    return duration(max(0, int((time - now).total_seconds())))


def _last_incident(job: DDPJob, *, wide: bool) -> dict[str, object]:
    """The rank that failed first in the last incident, and the rule that decided what followed."""
    incident = job.status.last_incident
    if incident is None:
        return {}
    code = f", exit code {incident.exit_code}" if incident.exit_code is not None else ""
    step = f", after step {incident.step}" if incident.step is not None else ""
    more = (
        f"; {counted(incident.consequences, f'more {called(job)}')} failed with it" if incident.consequences else ""
    )
    failed = job.status.condition(ConditionType.FAILED)
    no_more = incident.action is not RestartAction.FAIL and failed is not None and failed.reason in NO_MORE
    why = f": {incident.cause}: {incident.message}"
    known = not wide and why[2:] in job.status.message
    return {
        "Incident": f"{incident.who}{code}{step}{'' if known else why}{more}",
        "Decided": f"{_decision(incident)}{f', but {failed.reason}' if no_more and failed else ''}",
    }


def advice_on(job: DDPJob) -> str:
    """Advice on what keeps the job from running, or on its last incident; empty if the advice adds nothing."""
    status, incident = job.status, job.status.last_incident
    ends = (ConditionType.BLOCKED, ConditionType.FAILED, ConditionType.COMPLETE)
    reasons = [said.reason for kind in ends if status.is_true(kind) and (said := status.condition(kind))]
    if incident and NO_MORE.issuperset(reasons):  # Otherwise the job is blocked, or has ended, for another reason.
        reasons.append(incident.cause)
    texts = (text for reason in reasons for known, text in ADVICE.items() if known == reason)
    advice = next((text for text in texts if not text.startswith(NOTHING_NEW)), "")
    return advice.replace("`", "").replace("NAME", job.metadata.name)


def _incidents(job: DDPJob, now: datetime) -> Iterator[tuple[str, str]]:
    """One row for each incident, newest first: its time and place, and what happened."""
    for incident in job.status.incidents:
        yield _incident(job, incident, now, f"{incident.cause}: {incident.message}")


def _earlier(job: DDPJob, now: datetime) -> Iterator[tuple[str, str]]:
    """One row for each incident but the last, newest first. A text that equals the one above it is not repeated."""
    for newer, incident in pairwise(job.status.incidents):
        same = (newer.cause, newer.message) == (incident.cause, incident.message)
        yield _incident(job, incident, now, "the same" if same else f"{incident.cause}: {incident.message}")


def _incident(job: DDPJob, incident: Incident, now: datetime, text: str) -> tuple[str, str]:
    width = max(len(known.who) for known in job.status.incidents)
    where = f"attempt {incident.attempt:<4} {incident.who:<{width}}  "
    return f"{age(incident.time, now):<6}{where}", f"{text} ({_decision(incident)})"


def _decision(incident: Incident) -> str:
    return f"{incident.action} by {incident.rule or 'default'}"


def _conditions(job: DDPJob, now: datetime) -> Iterator[tuple[str, str]]:
    for condition in job.status.conditions:
        when = age(condition.last_transition_time, now)
        yield f"{condition.type:<20}{condition.status:<7}{when:<6}", f"{condition.reason}: {condition.message}"

"""A job in full, for a person: what it does and why, what went wrong before, and what it has left."""

import math
from collections.abc import Iterator
from datetime import datetime

from ddpjob_operator.api import ConditionType, DDPJob, DDPJobStatus, Incident, RestartAction
from ddpjob_operator.api.reasons import Reason
from ddpjob_operator.api.words import counted, duration, restarts
from ddpjob_operator.engine import called, deadline, expiry, present_budget, start_deadline
from ddpjob_operator.text import one_line

from .phrases import age, world
from .screen import Screen

NO_MORE = frozenset({Reason.MAX_RESTARTS_EXCEEDED, Reason.MAX_DISRUPTIONS_EXCEEDED, Reason.CRASH_LOOP})
"""Ends of jobs whose last incident would have been answered by one more restart."""


def describe(screen: Screen, job: DDPJob, now: datetime, made: datetime | None = None, **more: str) -> None:
    """Prints a job as it is now; `more` are lines to add below its name.

    Its age counts from when it was `made`, if that is known, otherwise from its start.
    """
    lines = {
        "Name": job.metadata.name,
        **more,
        **_doing(job, now),
        **_training(job, now),
        **_left(job, now),
        "Age": age(made or job.status.start_time, now),
        **_last_incident(job),
    }
    for name, value in lines.items():
        screen.print(f"{name + ':':<14}{one_line(str(value))}")
    for heading, rows in {"Incidents": _incidents(job, now), "Conditions": _conditions(job, now)}.items():
        for index, row in enumerate(rows):
            screen.print(f"{heading}:\n  {one_line(row)}" if index == 0 else f"  {one_line(row)}")


def _doing(job: DDPJob, now: datetime) -> dict[str, object]:
    """What the job is doing."""
    said = job.status
    wait = math.ceil(((said.backoff_until or now) - now).total_seconds())
    size = f"{world(said.nodes, said.procs_per_node)}, {said.backend}" if said.nodes and said.procs_per_node else ""
    wanted = f" ({job.spec.nodes} wanted)" if said.nodes != job.spec.nodes and not said.finished else ""
    return {
        "State": said.state,
        "Message": said.message,
        **({"Backoff": f"{duration(wait)} left"} if wait > 0 and not said.finished else {}),
        "Ready": said.display.ready,
        "Attempt": said.attempt,
        "World": size + wanted if size else "not started",
    }


def _training(job: DDPJob, now: datetime) -> dict[str, object]:
    """How far training has come, as its supervisors say."""
    said = job.status
    saved = said.checkpoint
    when = f", {age(saved.time, now)} ago" if saved and saved.time else ""
    whose = called(job)
    slow = [f"{whose} {one.node} on {one.node_name or '?'} ({one.slowdown:g} x)" for one in said.stragglers]
    lines = {
        "Progress": ", ".join(how_far(said)),
        "Speed": ", ".join(_how_fast(job, now)),
        "Checkpoint": f"step {saved.step}{when}" if saved else "",
        "Stragglers": "" if said.finished else ", ".join(slow),
    }
    return {name: line for name, line in lines.items() if line}


def how_far(said: DDPJobStatus) -> Iterator[str]:
    """How far the job is, in words: only what is known."""
    seen = said.progress
    if seen is None:
        return
    if seen.percent is not None or seen.steps_since_restart is not None:
        yield said.display.progress
    if seen.step is not None:
        yield f"step {seen.step} of {seen.total_steps}" if seen.total_steps else f"step {seen.step}"
    if seen.epoch is not None:
        yield f"epoch {seen.epoch}"
    if seen.loss is not None or seen.loss_not_finite:
        yield f"loss {seen.loss_not_finite or f'{seen.loss:.4g}'}"
    if said.display.eta and not said.finished:
        yield f"{said.display.eta} left"
    if said.is_true(ConditionType.STARTED_OVER):
        yield "started over"


def _how_fast(job: DDPJob, now: datetime) -> Iterator[str]:
    seen = job.status.progress
    if seen is None or job.status.finished:
        return
    if seen.samples_per_second is not None:
        yield f"{seen.samples_per_second:,.0f} samples/s"
    if seen.slowest_node is not None:
        yield f"{called(job)} {seen.slowest_node} is the slowest"
    if seen.last_step_time is not None:
        yield f"last step {age(seen.last_step_time, now)} ago"


def _left(job: DDPJob, now: datetime) -> dict[str, object]:
    """What has been used and what is left, of the budget and of the time."""
    said, restart = job.status, job.spec.restart
    used = present_budget(job.spec, said, now)
    left = f"{max(0, restart.max_restarts - used.used)} of {counted(restart.max_restarts, 'restart')}"
    if restart.max_disruptions is not None:
        free = max(0, restart.max_disruptions - used.disruptions)
        left += f" and {free} of {counted(restart.max_disruptions, 'disruption')}"
    deadlines = ", ".join(_deadlines(job, now))
    avoided = [f"{one.node_name} for {_until(one.until, now)}" for one in said.avoided_node_names if one.until > now]
    return {
        "Restarts": restarts(said.restarts, said.disruptions),
        "Budget": f"{left} left within {duration(restart.window_seconds)} of healthy running",
        **({"Deadline": deadlines} if deadlines else {}),
        **({"Avoids": ", ".join(avoided)} if avoided and not said.finished else {}),
    }


def _deadlines(job: DDPJob, now: datetime) -> Iterator[str]:
    if job.status.finished:
        times = {"deleted ": ("ttlSecondsAfterFinished", expiry(job.spec, job.status))}
    else:
        times = {
            "": ("activeDeadlineSeconds", deadline(job.spec, job.status)),
            "to run ": ("startDeadlineSeconds", start_deadline(job.spec, job.status)),
        }
    for what, (field, time) in times.items():
        if time is not None:
            yield f"{what}in {_until(time, now)} ({field})"


def _until(time: datetime, now: datetime) -> str:
    return duration(max(0, int((time - now).total_seconds())))


def _last_incident(job: DDPJob) -> dict[str, object]:
    """Which rank failed first the last time, and what decided about it."""
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
    return {
        "Incident": f"{incident.who}{code}{step}: {incident.cause}: {incident.message}{more}",
        "Decided": f"{_decision(incident)}{f', but {failed.reason}' if no_more and failed else ''}",
    }


def _incidents(job: DDPJob, now: datetime) -> Iterator[str]:
    """One line for each incident, the newest first."""
    width = max((len(incident.who) for incident in job.status.incidents), default=0)
    for incident in job.status.incidents:
        where = f"attempt {incident.attempt:<4} {incident.who:<{width}}  "
        yield f"{age(incident.time, now):<6}{where}{incident.cause}: {incident.message} ({_decision(incident)})"


def _decision(incident: Incident) -> str:
    return f"{incident.action} by {incident.rule or 'default'}"


def _conditions(job: DDPJob, now: datetime) -> Iterator[str]:
    for condition in job.status.conditions:
        when = age(condition.last_transition_time, now)
        yield f"{condition.type:<20}{condition.status:<7}{when:<6}{condition.reason}: {condition.message}"

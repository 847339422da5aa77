"""A start as a tree: what it consists of, and how many seconds each part took."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ddpjob_operator.api import ConditionType, DDPJobStatus

from .pods_seen import PodSeen


class StartStep(StrEnum):
    """The parts of a start, one after the other."""

    QUEUE = "queue"
    """From the job's creation or resumption, or the incident that ended the last attempt, until pods are created."""
    SCHEDULING = "scheduling"
    """Until all pods are scheduled."""
    IMAGE = "image"
    """Until a container has begun in each pod: images are pulled, volumes mounted."""
    CODE = "code"
    """Until the program has begun in each pod: code is fetched, and packages are installed."""
    RANKS_MET = "ranks met"
    """Until all supervisors have met, and the preflight has passed."""
    FIRST_STEP = "first step"
    """Until the first step is finished."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One part of a start."""

    step: StartStep
    seconds: float | None
    """How long it took or, if it is going on, has taken so far. None if it has not begun."""
    over: bool


@dataclass(frozen=True, slots=True)
class StartMoments:
    """When the parts of a start ended; None: not yet, or unknown."""

    began: datetime | None
    ends: dict[StartStep, datetime | None]


def start_tree(times: StartMoments, now: datetime) -> tuple[Branch, ...]:
    """The parts of a start in their order, at the time `now`.

    A part whose end is unknown, although a later part is over, is left out: its time is in the next part.

    Example:
        Pods were created after 4 s, and all of them ran after 10 s; how long images were pulled is unknown. The parts
        are `queue` (4 s, over), `code` (6 s, over), `ranks met` (going on), and `first step` (not begun).
    """
    if times.began is None:
        return ()
    return tuple(_branches(times, times.began, now))


def _branches(times: StartMoments, since: datetime, now: datetime) -> Iterator[Branch]:
    # An end before the beginning is that of an earlier start, as of pods that were not replaced.
    ends = {step: end for step in StartStep if (end := times.ends.get(step)) is not None and end >= since}
    last = max((number for number, step in enumerate(StartStep) if step in ends), default=-1)
    for number, step in enumerate(StartStep):
        if step in ends:
            end = max(since, ends[step])
            yield Branch(step, (end - since).total_seconds(), over=True)
            since = end
        elif number > last:
            begun = number == last + 1
            yield Branch(step, max(0.0, (now - since).total_seconds()) if begun else None, over=False)


def start_moments(
    status: DDPJobStatus, made: datetime | None, pods: Iterable[PodSeen] = (), met: datetime | None = None
) -> StartMoments:
    """The times of the present attempt's start.

    `made` is when the job was created, `pods` are the present ones, and `met` is when its supervisors let the ranks
    begin, as their status page says.
    """
    present, incident, progress = [*pods], status.last_incident, status.progress
    first, resumed = status.attempt <= 1, status.start_time if status.resumed else None
    running = status.condition(ConditionType.RUNNING)
    ran = running.last_transition_time if running is not None and running.status == "True" else None
    stepped = progress.since if progress is not None and progress.attempt in {None, status.attempt} else None
    if first:
        began = resumed or made or status.start_time
    else:
        began = max(filter(None, (status.start_time, incident.time if incident else None)), default=None)
    ends = {
        StartStep.QUEUE: status.start_time if first else _last(pod.created for pod in present),
        StartStep.SCHEDULING: _last(pod.scheduled for pod in present),
        StartStep.IMAGE: _last(pod.begun for pod in present),
        StartStep.CODE: ran or (status.first_run_time if first else None),
        StartStep.RANKS_MET: met,
        StartStep.FIRST_STEP: stepped,
    }
    return StartMoments(began, ends)


def _last(moments: Iterable[datetime | None]) -> datetime | None:
    """The last of moments; None if there is none, or one of them is unknown."""
    found = [*moments]
    known = [moment for moment in found if moment is not None]
    return max(known) if known and len(known) == len(found) else None

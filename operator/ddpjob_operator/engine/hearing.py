"""What rank 0's supervisor says of its gang, read as the word of a program that may be of another version.

Nothing in a document is an error: what is not understood is left out, and numbers and texts are bounded, since some
of them go into the job's status.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from ddpjob_operator.api import Cause, CheckpointSeen, Progress
from ddpjob_operator.api.contract import MAX_NODES, MAX_PROCS_PER_NODE
from ddpjob_operator.api.words import duration

INCIDENTS = 16
NAMED = 8
TEXT = 512
LARGEST = 2**53
"""What every reader of JSON can hold."""
MOST_PROCESSES = MAX_NODES * MAX_PROCS_PER_NODE
AHEAD, BACK = timedelta(days=1), timedelta(days=3660)
"""Clocks differ; a moment that is farther away than this is none."""

CLAIMABLE = frozenset(
    {
        Cause.APPLICATION,
        Cause.OUT_OF_MEMORY,
        Cause.CONFIG_ERROR,
        Cause.STORAGE_FULL,
        Cause.PREFLIGHT_FAILED,
        Cause.STALLED,
        Cause.PEER_LOST,
        Cause.STOPPED,
    }
)
"""What a program may say of itself; the rest is the cluster's to say."""


class Phase(StrEnum):
    """What a gang of supervisors is doing."""

    GATHERING = "Gathering"
    """Not all supervisors are connected."""
    PREFLIGHT = "Preflight"
    RUNNING = "Running"
    STALLED = "Stalled"
    STOPPING = "Stopping"
    DONE = "Done"
    UNKNOWN = ""
    """Something that this version does not know."""


@dataclass(frozen=True, slots=True)
class HeardIncident:
    """An incident that the supervisors answer by a restart in place."""

    attempt: int
    """The attempt that it ended."""
    time: datetime
    rank: int
    """The node's rank that failed first."""
    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    """The exception where there was one, and what is known of the failure."""
    step: int | None = None
    tied: bool = False
    consequences: int = 0
    consequence_ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stall:
    """That no step is finished any more."""

    since: datetime
    rank: int | None
    """The node's rank that is to blame, where that is known."""
    message: str


@dataclass(frozen=True, slots=True)
class HeardStraggler:
    """A node that is slower than the others."""

    rank: int
    slowdown: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What a supervisor said, and when."""

    at: datetime
    """When it was read; with nothing but an error, when it could not be read for the first time."""
    attempt: int
    """The attempt that it is in; 0 where it never said anything."""
    phase: Phase
    since: datetime
    """When the phase began."""
    missing: tuple[int, ...] = ()
    """Node ranks whose supervisors are not connected; the first of them."""
    incidents: tuple[HeardIncident, ...] = ()
    """The last ones that supervisors answer by a restart in place, the oldest first."""
    progress: Progress | None = None
    checkpoint: CheckpointSeen | None = None
    stall: Stall | None = None
    stragglers: tuple[HeardStraggler, ...] = ()
    pod: str = ""
    """The pod that it was read from."""
    error: str = ""
    """Why it could not be read lately; the last good content stays."""
    error_since: datetime | None = None
    """Since when it cannot be read."""


def heard_of(document: Any, at: datetime, *, uid: str, pod: str) -> Heard | None:
    """What a status document says, read from that pod at that moment; None where it is none of this job's."""
    if not isinstance(document, Mapping) or document.get("uid") != uid:
        return None
    attempt = _count(document.get("attempt"))
    if not attempt:
        return None
    said = document.get("phase")
    return Heard(
        at=at,
        attempt=attempt,
        phase=next((phase for phase in Phase if phase == said), Phase.UNKNOWN),
        since=_time(document.get("since"), at) or at,
        missing=_ranks(document.get("missing")),
        incidents=_incidents(document.get("incidents"), at),
        progress=_progress(document.get("progress"), at),
        checkpoint=_checkpoint(document.get("checkpoint"), at),
        stall=_stall(document.get("stall"), at),
        stragglers=_stragglers(document.get("stragglers")),
        pod=pod,
    )


def unheard(last: Heard | None, error: str, at: datetime, *, pod: str) -> Heard:
    """What is known once a pod could not be asked; `last` is what was known before."""
    if last is None or last.pod != pod:
        return Heard(at, 0, Phase.UNKNOWN, at, pod=pod, error=error[:TEXT], error_since=at)
    return replace(last, error=error[:TEXT], error_since=last.error_since or at)


def is_news(known: Heard | None, heard: Heard) -> bool:
    """Whether anything was heard that was not known, beside when."""
    return known is None or replace(known, at=heard.at) != heard


def _incidents(value: Any, at: datetime) -> tuple[HeardIncident, ...]:
    """In the order of their attempts, one for each: that is what tells them apart."""
    found = [_incident(one, at) for one in _list(value)[-INCIDENTS:]]
    by_attempt = {one.attempt: one for one in found if one is not None}
    return tuple(by_attempt[attempt] for attempt in sorted(by_attempt))


def _incident(value: Any, at: datetime) -> HeardIncident | None:
    if not isinstance(value, Mapping):
        return None
    attempt, rank = _count(value.get("attempt")), _count(value.get("rank"), MAX_NODES - 1)
    if not attempt or rank is None:
        return None
    cause = value.get("cause")
    named = _ranks(value.get("consequenceRanks"))
    words = (_text(value.get("exception")), _text(value.get("message")))
    return HeardIncident(
        attempt=attempt,
        time=_time(value.get("time"), at) or at,
        rank=rank,
        cause=next((known for known in CLAIMABLE if known == cause), Cause.APPLICATION),
        exit_code=_count(value.get("exitCode"), 255),
        signal=_count(value.get("signal"), 64),
        message=_text(": ".join(part for part in words if part)),
        step=_count(value.get("step")),
        tied=value.get("tied") is True,
        consequences=max(_count(value.get("consequences"), MOST_PROCESSES) or 0, len(named)),
        consequence_ranks=named,
    )


def _progress(value: Any, at: datetime) -> Progress | None:
    if not isinstance(value, Mapping):
        return None
    step, eta, percent = _count(value.get("step")), _count(value.get("etaSeconds")), _number(value.get("percent"))
    part = None if percent is None else min(round(percent, 1), 100.0)
    return Progress(
        epoch=_count(value.get("epoch")),
        step=step,
        total_steps=_count(value.get("totalSteps")),
        percent=part,
        eta_seconds=eta,
        loss=_number(value.get("loss"), negative=True),
        samples_per_second=_number(value.get("samplesPerSecond")),
        last_step_time=_time(value.get("lastStepTime"), at),
        slowest_rank=_count(value.get("slowestRank"), MAX_NODES - 1),
        display=_shown(step, part),
        eta="" if eta is None else duration(eta),
    )


def _shown(step: int | None, percent: float | None) -> str:
    if percent is not None:
        return f"{math.floor(percent)}%"
    return "" if step is None else f"step {step}"


def _checkpoint(value: Any, at: datetime) -> CheckpointSeen | None:
    step = _count(value.get("step")) if isinstance(value, Mapping) else None
    return None if step is None else CheckpointSeen(step=step, time=_time(value.get("time"), at))


def _stall(value: Any, at: datetime) -> Stall | None:
    if not isinstance(value, Mapping):
        return None
    rank = _count(value.get("rank"), MAX_NODES - 1)
    return Stall(_time(value.get("since"), at) or at, rank, _text(value.get("message")))


def _stragglers(value: Any) -> tuple[HeardStraggler, ...]:
    """The slowest process of each node; the slowest node first."""
    slow: dict[int, float] = {}
    for one in _list(value)[:MOST_PROCESSES]:
        rank = _count(one.get("rank"), MAX_NODES - 1) if isinstance(one, Mapping) else None
        slowdown = _number(one.get("slowdown")) if rank is not None else None
        if rank is not None and slowdown is not None:
            slow[rank] = max(slow.get(rank, 0.0), round(slowdown, 1))
    ordered = sorted(slow, key=lambda rank: (-slow[rank], rank))
    return tuple(HeardStraggler(rank, slow[rank]) for rank in ordered[:NAMED])


def _ranks(value: Any) -> tuple[int, ...]:
    ranks = {_count(one, MAX_NODES - 1) for one in _list(value)[:MAX_NODES]}
    return tuple(sorted(rank for rank in ranks if rank is not None)[:NAMED])


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any, most: int = LARGEST) -> int | None:
    counted = isinstance(value, int) and not isinstance(value, bool)
    return value if counted and 0 <= value <= most else None


def _number(value: Any, *, negative: bool = False) -> float | None:
    """A number that JSON has: a loss that is not a number any more has none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and (negative or number >= 0) else None


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    return text.encode(errors="replace")[:TEXT].decode(errors="ignore")


def _time(value: Any, at: datetime) -> datetime | None:
    """A moment of RFC 3339, as far as it can be one."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC) if time.tzinfo and at - BACK <= time <= at + AHEAD else None
    except (ValueError, OverflowError):
        return None

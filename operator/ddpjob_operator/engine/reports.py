"""What rank 0's supervisor reports of its gang, read with care, since its program may be of another version.

Nothing in a document is an error: what is not understood is left out.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from ddpjob_operator.api import Cause, CheckpointSeen, Progress
from ddpjob_operator.api.contract import MAX_NODES, MAX_PROCS_PER_NODE
from ddpjob_operator.api.restart import signal_name

from .foreign import attempt_of, count_of, text_of, words_of
from .incidents.facts import Facts

INCIDENTS = 16
NAMED = 8
MOST_PROCESSES = MAX_NODES * MAX_PROCS_PER_NODE
AHEAD, BACK = timedelta(days=1), timedelta(days=3660)
"""Clocks differ, but a time farther away than this is not a time."""

NOT_FINITE = {
    **dict.fromkeys(("nan", "+nan", "-nan"), "NaN"),
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity"), "-Infinity"),
}
"""Numbers that are not finite, in the forms that programs have for what JSON has none for, and in ours."""

FROM_CHECKPOINT, AS_ASKED, NOTHING_SAVED = "FromCheckpoint", "AsAsked", "NothingSaved"
BEGINS = frozenset({FROM_CHECKPOINT, AS_ASKED, NOTHING_SAVED})
"""Where a program began, by its own account."""

CLAIMABLE = frozenset(
    {
        Cause.APPLICATION,
        Cause.OUT_OF_MEMORY,
        Cause.CONFIG_ERROR,
        Cause.DIVERGED,
        Cause.STORAGE_FULL,
        Cause.STORAGE_UNAVAILABLE,
        Cause.CHECKPOINT_UNUSABLE,
        Cause.PREFLIGHT_FAILED,
        Cause.DEVICE_FAILED,
        Cause.STALLED,
        Cause.PEER_LOST,
        Cause.STOPPED,
    }
)
"""Causes that a program may report of itself; the others are for the cluster to report."""


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
class Stall:
    """That no step finishes any more."""

    since: datetime
    node: int | None
    """The number of the node that is to blame, if known."""
    message: str


@dataclass(frozen=True, slots=True)
class HeardStraggler:
    """A node that is slower than the others."""

    node: int
    slowdown: float


@dataclass(frozen=True, slots=True)
class Heard:
    """What a supervisor reported, and when."""

    at: datetime
    """When it was read; if it never could be, when that failed for the first time."""
    attempt: int
    """The attempt that it is in; 0 if it never reported anything."""
    phase: Phase
    since: datetime
    """When the phase began."""
    order: tuple[int, ...] | None = ()
    """The nodes by the ranks of their processes in that attempt; empty if ranks stand by the nodes' numbers; None if
    what it says is no order."""
    missing: tuple[int, ...] = ()
    """Nodes, by number, whose supervisors are not connected; the first of them."""
    incidents: tuple[Facts, ...] = ()
    """The latest ones that supervisors answered with a restart in place, the oldest first."""
    progress: Progress | None = None
    checkpoint: CheckpointSeen | None = None
    stall: Stall | None = None
    stragglers: tuple[HeardStraggler, ...] = ()
    pod: str = ""
    """The pod that it was read from."""
    error: str = ""
    """Why it could not be read the last time; the content is then what was read before."""
    error_since: datetime | None = None
    """Since when it could not be read."""


def fingerprint(uid: str) -> str:
    """The name by which a status page calls its job: readers that may not know its uid do not learn it."""
    return hashlib.sha256(uid.encode()).hexdigest()[:32]


def heard_of(document: Any, at: datetime, *, uid: str, pod: str, last: Heard | None = None) -> Heard | None:
    """What a status document says, read from that pod at that moment; None if it is not one of this job.

    Its times are converted to the reader's clock, if it says what its own clock shows. `last` is the previous report:
    a phase for which the document gives no beginning began when it was first reported.
    """
    if not isinstance(document, Mapping) or document.get("job") != fingerprint(uid):
        return None
    attempt = attempt_of(document.get("attempt"))
    if attempt is None:
        return None
    said, clock = document.get("phase"), _clock(document.get("now"), at)
    # A supervisor of a newer version may have phases of its own.
    phase = next((phase for phase in Phase if phase == said), Phase.UNKNOWN)
    # A phase without a beginning has lasted since it was first reported.
    same = last is not None and (last.pod, last.attempt, last.phase) == (pod, attempt, phase)
    return Heard(
        at=at,
        attempt=attempt,
        phase=phase,
        since=clock.time(document.get("since")) or (last.since if last and same else at),
        order=_order(document.get("order")),
        missing=_nodes(document.get("missing")),
        incidents=_incidents(document.get("incidents"), clock),
        progress=_progress(document.get("progress"), clock),
        checkpoint=_checkpoint(document.get("checkpoint"), clock),
        stall=_stall(document.get("stall"), clock),
        stragglers=_stragglers(document.get("stragglers")),
        pod=pod,
    )


def incident_of(report: Mapping[str, Any], at: datetime) -> Facts | None:
    """The incident that a supervisor describes in a failure report, read at that moment; None if it is not one."""
    return _incident(report.get("incident"), _Clock(at))


def last_words_of(document: Any, at: datetime) -> tuple[Progress | None, CheckpointSeen | None]:
    """How far training came and what it saved last, as rank 0's supervisor reported when it ended at that moment."""
    if not isinstance(document, Mapping):
        return None, None
    clock = _Clock(at)
    return _progress(document.get("progress"), clock), _checkpoint(document.get("checkpoint"), clock)


def rank_of(value: Any, node: int, *, placed: bool = False) -> int | None:
    """Which of all ranks a process of that node says it is; a program that does not know says 0.

    `placed`: its supervisor says it, and that ranks follow placement: it may be any.
    """
    rank = count_of(value, MOST_PROCESSES - 1)
    return rank if rank is not None and (placed or rank >= node) else None


def unheard(last: Heard | None, error: str, at: datetime, *, pod: str) -> Heard:
    """What is known after a pod could not be read; `last` is what was known before."""
    if last is None or last.pod != pod:
        return Heard(at, 0, Phase.UNKNOWN, at, pod=pod, error=text_of(error), error_since=at)
    return replace(last, error=text_of(error), error_since=last.error_since or at)


def is_news(known: Heard | None, heard: Heard) -> bool:
    """Whether a report differs from the known one in more than the time at which it was read."""
    return known is None or replace(known, at=heard.at) != heard


@dataclass(frozen=True, slots=True)
class _Clock:
    """Reads times of another clock."""

    at: datetime
    """The time of reading, by our clock."""
    behind: timedelta = timedelta(0)
    """How much later it is by our clock."""

    def time(self, value: Any) -> datetime | None:
        """An RFC 3339 time, converted to our clock; None if it is not one, or an impossible one."""
        if not isinstance(value, str):
            return None
        try:
            time = datetime.fromisoformat(value)
            is_near = time.tzinfo is not None and self.at - BACK <= time <= self.at + AHEAD
            return time.astimezone(UTC) + self.behind if is_near else None
        except (ValueError, OverflowError):
            return None


def _clock(now: Any, at: datetime) -> _Clock:
    """A clock that showed `now` when it was `at` by ours.

    In whole seconds: the time that an answer was on its way is neither a difference nor news.
    """
    shown = _Clock(at).time(now)
    return _Clock(at) if shown is None else _Clock(at, timedelta(seconds=round((at - shown).total_seconds())))


def _incidents(value: Any, clock: _Clock) -> tuple[Facts, ...]:
    """In the order of their attempts, one for each attempt: the attempt is what tells them apart."""
    found = [_incident(one, clock) for one in _list(value)[-INCIDENTS:]]
    by_attempt = {one.attempt: one for one in found if one is not None}
    return tuple(by_attempt[attempt] for attempt in sorted(by_attempt))


def _incident(value: Any, clock: _Clock) -> Facts | None:
    if not isinstance(value, Mapping):
        return None
    attempt, node = attempt_of(value.get("attempt")), count_of(value.get("node"), MAX_NODES - 1)
    if attempt is None or node is None:
        return None
    cause = value.get("cause")
    signal, named = count_of(value.get("signal"), 64), _nodes(value.get("consequenceNodes"))
    return Facts(
        attempt=attempt,
        time=clock.time(value.get("time")) or clock.at,
        node=node,
        cause=next((known for known in CLAIMABLE if known == cause), Cause.APPLICATION),
        rank=count_of(value.get("rank"), MOST_PROCESSES - 1),
        exit_code=count_of(value.get("exitCode"), 255),
        signal=signal_name(signal) if signal else None,
        message=words_of(value),
        step=count_of(value.get("step")),
        tied=value.get("tied") is True,
        consequences=max(count_of(value.get("consequences"), MOST_PROCESSES) or 0, len(named)),
        consequence_nodes=named,
    )


def _progress(value: Any, clock: _Clock) -> Progress | None:
    if not isinstance(value, Mapping):
        return None
    percent = _number(value.get("percent"))
    loss, not_finite = _loss(value.get("loss"))
    begins = value.get("begins")
    return Progress(
        attempt=attempt_of(value.get("attempt")),
        since=clock.time(value.get("since")),
        first_step=count_of(value.get("firstStep")),
        recounts=value.get("recounts") is True,
        begins=begins if isinstance(begins, str) and begins in BEGINS else None,
        epoch=count_of(value.get("epoch")),
        step=count_of(value.get("step")),
        steps_since_restart=count_of(value.get("stepsSinceRestart")),
        total_steps=count_of(value.get("totalSteps")),
        percent=None if percent is None else min(round(percent, 1), 100.0),
        eta_seconds=count_of(value.get("etaSeconds")),
        loss=loss,
        loss_not_finite=not_finite,
        loss_not_finite_since_step=count_of(value.get("lossNotFiniteSinceStep")) if not_finite else None,
        samples_per_second=_number(value.get("samplesPerSecond")),
        last_step_time=clock.time(value.get("lastStepTime")),
        slowest_node=count_of(value.get("slowestNode"), MAX_NODES - 1),
    )


def _checkpoint(value: Any, clock: _Clock) -> CheckpointSeen | None:
    step = count_of(value.get("step")) if isinstance(value, Mapping) else None
    return None if step is None else CheckpointSeen(step=step, time=clock.time(value.get("time")))


def _stall(value: Any, clock: _Clock) -> Stall | None:
    if not isinstance(value, Mapping):
        return None
    node = count_of(value.get("node"), MAX_NODES - 1)
    return Stall(clock.time(value.get("since")) or clock.at, node, text_of(value.get("message")))


def _stragglers(value: Any) -> tuple[HeardStraggler, ...]:
    """The slowest process of each node; the slowest node first."""
    slow: dict[int, float] = {}
    for one in _list(value)[:MOST_PROCESSES]:
        node = count_of(one.get("node"), MAX_NODES - 1) if isinstance(one, Mapping) else None
        slowdown = _number(one.get("slowdown")) if node is not None else None
        if node is not None and slowdown is not None:
            slow[node] = max(slow.get(node, 0.0), round(slowdown, 1))
    ordered = sorted(slow, key=lambda node: (-slow[node], node))
    return tuple(HeardStraggler(node, slow[node]) for node in ordered[:NAMED])


def _nodes(value: Any) -> tuple[int, ...]:
    nodes = {count_of(one, MAX_NODES - 1) for one in _list(value)[:MAX_NODES]}
    return tuple(sorted(node for node in nodes if node is not None)[:NAMED])


def _order(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return ()
    nodes = [count_of(one, MAX_NODES - 1) for one in _list(value)[:MAX_NODES]]
    known = tuple(node for node in nodes if node is not None)
    return known if nodes and sorted(known) == [*range(len(nodes))] else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _loss(value: Any) -> tuple[float | None, str | None]:
    """A loss, or the word for one that is not finite: some writers of JSON have NaN in it, others texts."""
    if isinstance(value, str):
        return None, NOT_FINITE.get(value.lower())
    number = _float(value)
    if number is None or math.isfinite(number):
        return number, None
    return None, NOT_FINITE[str(number)]


def _number(value: Any) -> float | None:
    """A finite number that is not negative."""
    number = _float(value)
    return number if number is not None and math.isfinite(number) and number >= 0 else None


def _float(value: Any) -> float | None:
    """A number of JSON; one that is too large is infinite, whether it was written as 1e400 or with all its digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

"""Reads a supervisor's report on its gang leniently, because the supervisor may have another version.

Values that this version does not understand are ignored, and never cause an error.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from ddpjob_operator.api import Cause, CheckpointSeen, FailedCode, Progress, RequestState, RunningCode
from ddpjob_operator.api.contract import MAX_NODES, MAX_PROCS_PER_NODE
from ddpjob_operator.api.restart import signal_name
from ddpjob_operator.api.status import MAX_RESULT, MAX_RESULT_PLACE, PLACE

from .foreign import attempt_of, count_of, text_of, words_of
from .incidents.facts import Facts

INCIDENTS = 16
NAMED = 8
MOST_PROCESSES = MAX_NODES * MAX_PROCS_PER_NODE
AHEAD, BACK = timedelta(days=1), timedelta(days=3660)
"""Clocks differ, but times that are further in the future or in the past than this are ignored."""

NOT_FINITE = {
    **dict.fromkeys(("nan", "+nan", "-nan"), "NaN"),
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity"), "-Infinity"),
}
"""Translates the words that programs write for non-finite numbers, which JSON cannot represent, into the words that
the status uses."""

FROM_CHECKPOINT, AS_ASKED, NOTHING_SAVED = "FromCheckpoint", "AsAsked", "NothingSaved"
ANSWERS = (RequestState.SAVED, RequestState.NOT_SAVED)
ACTIVITIES = frozenset({"Evaluating", "Saving"})
BEGINS = frozenset({FROM_CHECKPOINT, AS_ASKED, NOTHING_SAVED})
"""The values by which a program reports how it chose its first step."""

PLACES = re.compile(PLACE)
DIGEST = re.compile(r"[0-9a-f]{64}")
MAX_BY = 256

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
"""The causes that a program may report. All other causes can only come from the cluster."""


class Phase(StrEnum):
    """What a gang of supervisors is doing."""

    GATHERING = "Gathering"
    """Some supervisors are not connected yet."""
    HOLDING = "Holding"
    """The gang is held, and runs no program."""
    PREFLIGHT = "Preflight"
    RUNNING = "Running"
    STALLED = "Stalled"
    STOPPING = "Stopping"
    DONE = "Done"
    UNKNOWN = ""
    """A phase that this version does not know."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A supervisor's report that training has stalled: no step finishes any more."""

    since: datetime
    node: int | None
    """The number of the node that is to blame, if known."""
    message: str


@dataclass(frozen=True, slots=True)
class ReportedStraggler:
    """A node that is slower than the others."""

    node: int
    slowdown: float


@dataclass(frozen=True, slots=True)
class ReportedRequest:
    """The outcome of the last request for a checkpoint that has reached a supervisor."""

    request: str
    """The request, as the operator wrote it; empty if none has reached the supervisor."""
    state: RequestState | None = None
    """None if there is no answer yet."""
    step: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class SupervisorReport:
    """A supervisor's report, with the time at which it was read."""

    at: datetime
    """When the report was read. If no report was ever read: when reading first failed."""
    attempt: int
    """The attempt that the gang is in; 0 if the supervisor never reported anything."""
    phase: Phase
    since: datetime
    """When the phase began."""
    order: tuple[int, ...] | None = ()
    """The numbers of the nodes in the order of their ranks in that attempt; empty if ranks follow the nodes' numbers;
    None if the reported order is invalid."""
    missing: tuple[int, ...] = ()
    """The numbers of the first few nodes whose supervisors are not connected."""
    incidents: tuple[Facts, ...] = ()
    """The latest incidents that supervisors answered with a restart in place, the oldest first."""
    progress: Progress | None = None
    checkpoint: CheckpointSeen | None = None
    requested: ReportedRequest | None = None
    """None if the supervisor cannot receive requests."""
    stall: Stall | None = None
    delay: str = ""
    """Why the attempt's first step counts as late, in a sentence; empty if it does not."""
    stopped: str = ""
    """Which ranks are stopped by a signal or a debugger, in a sentence; empty: none is."""
    hold: str = ""
    """What a held gang does, in a clause; empty: the gang is not held."""
    code: RunningCode | None = None
    """The code that the ranks run; None if it is in the image, or the supervisor is older."""
    stragglers: tuple[ReportedStraggler, ...] = ()
    pod: str = ""
    """The name of the pod that the report was read from."""
    error: str = ""
    """Why the last read failed; empty if it succeeded. After a failure, all other fields come from the last read that
    succeeded."""
    error_since: datetime | None = None
    """When reading began to fail; None if the last read succeeded."""


def fingerprint(uid: str) -> str:
    """Returns the job's identifier on its status page: a digest, so that the page does not reveal the uid."""
    return hashlib.sha256(uid.encode()).hexdigest()[:32]


def parse_report(
    document: Any, at: datetime, *, uid: str, pod: str, last: SupervisorReport | None = None
) -> SupervisorReport | None:
    """Parses a status document that was read from `pod` at the moment `at`; None if it belongs to another job.

    If the document contains the present time by its own clock, all its times are converted to the reader's clock.
    `last` is the previous report: if the document does not say when a phase began, the phase counts from the first
    report that mentioned it.
    """
    if not isinstance(document, Mapping) or document.get("job") != fingerprint(uid):
        return None
    attempt = attempt_of(document.get("attempt"))
    if attempt is None:
        return None
    name, clock = document.get("phase"), _clock(document.get("now"), at)
    # A supervisor of a newer version may have phases of its own.
    phase = next((phase for phase in Phase if phase == name), Phase.UNKNOWN)
    same = last is not None and (last.pod, last.attempt, last.phase) == (pod, attempt, phase)
    return SupervisorReport(
        at=at,
        attempt=attempt,
        phase=phase,
        since=clock.time(document.get("since")) or (last.since if last and same else at),
        order=_order(document.get("order")),
        missing=_nodes(document.get("missing")),
        incidents=_incidents(document.get("incidents"), clock),
        progress=_progress(document.get("progress"), clock),
        checkpoint=_checkpoint(document.get("checkpoint"), clock),
        requested=_requested(document.get("requestedCheckpoint")),
        stall=_stall(document.get("stall"), clock),
        delay=_message(document.get("firstStepDelay")),
        stopped=_message(document.get("stoppedRanks")),
        hold=_message(document.get("hold")),
        code=_code(document.get("code"), clock),
        stragglers=_stragglers(document.get("stragglers")),
        pod=pod,
    )


def incident_of(report: Mapping[str, Any], at: datetime) -> Facts | None:
    """Returns the incident in a supervisor's failure report that was read at `at`; None if it contains none."""
    return _incident(report.get("incident"), _Clock(at))


@dataclass(frozen=True, slots=True)
class FinalReport:
    """The final report of rank 0's supervisor."""

    progress: Progress | None = None
    checkpoint: CheckpointSeen | None = None
    result: str | None = None
    """The job's result as JSON; None if there is none, or if it is kept elsewhere."""
    result_place: str | None = None


def last_words_of(document: Any, at: datetime) -> FinalReport:
    """Returns what the final report of rank 0's supervisor says, which was written at `at`."""
    if not isinstance(document, Mapping):
        return FinalReport()
    clock, place = _Clock(at), document.get("resultPlace")
    return FinalReport(
        _progress(document.get("progress"), clock),
        _checkpoint(document.get("checkpoint"), clock),
        _result(document),
        place if isinstance(place, str) and len(place) <= MAX_RESULT_PLACE and PLACES.fullmatch(place) else None,
    )


def _result(document: Mapping[str, Any]) -> str | None:
    """Returns the job's result as JSON; None if there is none that a status can hold."""
    if "result" not in document:
        return None
    try:
        text = json.dumps(document["result"], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text if len(text.encode()) <= MAX_RESULT else None
    except (ValueError, RecursionError):  # NaN, a number that is too long, or half of a surrogate pair.
        return None


def rank_of(value: Any, node: int, *, placed: bool = False) -> int | None:
    """Returns the rank that a process of this node reported; None if the process cannot have that rank.

    Programs that do not know their rank report 0. If `placed` is true, a supervisor reported the rank, and ranks
    follow placement, so that the node may have any rank.
    """
    rank = count_of(value, MOST_PROCESSES - 1)
    return rank if rank is not None and (placed or rank >= node) else None


def with_read_error(last: SupervisorReport | None, error: str, at: datetime, *, pod: str) -> SupervisorReport:
    """Returns the previous report, `last`, with the error of a failed attempt to read a new report from `pod`."""
    if last is None or last.pod != pod:
        return SupervisorReport(at, 0, Phase.UNKNOWN, at, pod=pod, error=text_of(error), error_since=at)
    return replace(last, error=text_of(error), error_since=last.error_since or at)


def is_news(known: SupervisorReport | None, report: SupervisorReport) -> bool:
    """Whether a report differs from the known one in more than the time at which it was read."""
    return known is None or replace(known, at=report.at) != report


@dataclass(frozen=True, slots=True)
class _Clock:
    """Converts times from another clock to ours."""

    at: datetime
    """When the document was read, by our clock."""
    behind: timedelta = timedelta(0)
    """How far the other clock is behind ours."""

    def time(self, value: Any) -> datetime | None:
        """Converts an RFC 3339 time to our clock; None if `value` is not a time, or is not plausible."""
        if not isinstance(value, str):
            return None
        try:
            time = datetime.fromisoformat(value)
            is_near = time.tzinfo is not None and self.at - BACK <= time <= self.at + AHEAD
            return time.astimezone(UTC) + self.behind if is_near else None
        except (ValueError, OverflowError):
            return None


def _clock(now: Any, at: datetime) -> _Clock:
    """Returns a converter for a clock that showed `now` when ours showed `at`.

    The difference is rounded to whole seconds, because otherwise varying network delays would make every report look
    new.
    """
    shown = _Clock(at).time(now)
    return _Clock(at) if shown is None else _Clock(at, timedelta(seconds=round((at - shown).total_seconds())))


def _incidents(value: Any, clock: _Clock) -> tuple[Facts, ...]:
    """Returns the incidents in the order of the attempts that they ended, at most one per attempt."""
    found = [_incident(item, clock) for item in _list(value)[-INCIDENTS:]]
    by_attempt = {incident.attempt: incident for incident in found if incident is not None}
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
        steps_since_restart=count_of(value.get("stepsSinceRestart")),
        tied=value.get("tied") is True,
        consequences=max(count_of(value.get("consequences"), MOST_PROCESSES) or 0, len(named)),
        consequence_nodes=named,
    )


def _progress(value: Any, clock: _Clock) -> Progress | None:
    if not isinstance(value, Mapping):
        return None
    percent = _number(value.get("percent"))
    loss, not_finite = _loss(value.get("loss"))
    begins, activity = value.get("begins"), value.get("activity")
    return Progress(
        attempt=attempt_of(value.get("attempt")),
        since=clock.time(value.get("since")),
        first_step=count_of(value.get("firstStep")),
        recounts=value.get("recounts") is True,
        begins=begins if isinstance(begins, str) and begins in BEGINS else None,
        activity=activity if isinstance(activity, str) and activity in ACTIVITIES else None,
        activity_time=clock.time(value.get("activityTime")),
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
        step_seconds=_number(value.get("stepSeconds")),
        stall_limit_seconds=_number(value.get("stallLimitSeconds")),
        last_step_time=clock.time(value.get("lastStepTime")),
        slowest_node=count_of(value.get("slowestNode"), MAX_NODES - 1),
    )


def _checkpoint(value: Any, clock: _Clock) -> CheckpointSeen | None:
    step = count_of(value.get("step")) if isinstance(value, Mapping) else None
    return None if step is None else CheckpointSeen(step=step, time=clock.time(value.get("time")))


def _requested(value: Any) -> ReportedRequest | None:
    if not isinstance(value, Mapping):
        return None
    state = next((state for state in ANSWERS if state == value.get("state")), None)
    step = count_of(value.get("step"))
    # A saved checkpoint has a step. Otherwise the report is not valid.
    state = None if state is RequestState.SAVED and step is None else state
    return ReportedRequest(text_of(value.get("request")), state, step, text_of(value.get("message")))


def _stall(value: Any, clock: _Clock) -> Stall | None:
    if not isinstance(value, Mapping):
        return None
    node = count_of(value.get("node"), MAX_NODES - 1)
    return Stall(clock.time(value.get("since")) or clock.at, node, text_of(value.get("message")))


def _message(value: Any) -> str:
    return text_of(value.get("message")) if isinstance(value, Mapping) else ""


def _code(value: Any, clock: _Clock) -> RunningCode | None:
    digest = value.get("digest") if isinstance(value, Mapping) else None
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        return None
    code = RunningCode(
        revision=count_of(value.get("revision")) or 0,
        digest=digest,
        untried=value.get("untried") is True,
        failed=_failed_code(value.get("failed"), clock),
    )
    if (attempt := attempt_of(value.get("attempt"))) is None:
        return code
    by = text_of(value.get("by"))[:MAX_BY]
    return code.model_copy(update={"by": by, "time": clock.time(value.get("time")), "attempt": attempt})


def _failed_code(value: Any, clock: _Clock) -> FailedCode | None:
    digest = value.get("digest") if isinstance(value, Mapping) else None
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        return None
    return FailedCode(
        revision=count_of(value.get("revision")) or 0,
        digest=digest,
        by=text_of(value.get("by"))[:MAX_BY],
        time=clock.time(value.get("time")),
        attempt=attempt_of(value.get("attempt")),
        rank=count_of(value.get("rank"), MOST_PROCESSES - 1),
        message=text_of(value.get("message")),
    )


def _stragglers(value: Any) -> tuple[ReportedStraggler, ...]:
    """Returns the slowdown of each node's slowest process, beginning with the slowest node."""
    slow: dict[int, float] = {}
    for item in (item for item in _list(value)[:MOST_PROCESSES] if isinstance(item, Mapping)):
        node, slowdown = count_of(item.get("node"), MAX_NODES - 1), _number(item.get("slowdown"))
        if node is not None and slowdown is not None:
            slow[node] = max(slow.get(node, 0.0), round(slowdown, 1))
    ordered = sorted(slow, key=lambda node: (-slow[node], node))
    return tuple(ReportedStraggler(node, slow[node]) for node in ordered[:NAMED])


def _nodes(value: Any) -> tuple[int, ...]:
    nodes = {count_of(item, MAX_NODES - 1) for item in _list(value)[:MAX_NODES]}
    return tuple(sorted(node for node in nodes if node is not None)[:NAMED])


def _order(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return ()
    nodes = [count_of(item, MAX_NODES - 1) for item in _list(value)[:MAX_NODES]]
    known = tuple(node for node in nodes if node is not None)
    return known if nodes and sorted(known) == [*range(len(nodes))] else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _loss(value: Any) -> tuple[float | None, str | None]:
    """Returns a finite loss, or the word for a non-finite loss, which programs write as NaN or as a string."""
    if isinstance(value, str):
        return None, NOT_FINITE.get(value.lower())
    number = _float(value)
    if number is None or math.isfinite(number):
        return number, None
    return None, NOT_FINITE[str(number)]


def _number(value: Any) -> float | None:
    """Returns `value` if it is a finite number that is not negative."""
    number = _float(value)
    return number if number is not None and math.isfinite(number) and number >= 0 else None


def _float(value: Any) -> float | None:
    """Returns a JSON number as a float; infinite if it is too large, whether written as 1e400 or in full."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

"""Incidents: which rank failed first, and why. The rest are consequences.

"First" is told by the kind of failure before the clock: a rank that was killed or raised an error of its own comes
before one that lost a peer, whatever the times say, since a peer is lost because of something else and node clocks
differ. Within one kind the earlier one is first; equal moments are called a tie.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ddpjob_operator.api import Cause, Failure
from ddpjob_operator.api.contract import ExitCode

from .snapshot import Exit, Pod

MESSAGE_BYTES = 512
CONSEQUENCES_NAMED = 8
LARGEST_STEP = 2**63 - 1
"""What an integer of a Kubernetes object can hold; a status with more would be refused."""

SIGNAL_BASE = 128
SIGNALS = range(1, 65)
SIGKILL, SIGTERM = 9, 15
STOP_SIGNALS = frozenset({SIGKILL, SIGTERM})
"""How a pod that is being deleted ends: by our own hand, or somebody's `kubectl delete`."""

OOM_KILLED = "OOMKilled"
"""The container runtime's word, true also of a pod that was being deleted when its memory ran out."""

PEER_LOST_PHRASES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "DistNetworkError",
    "DistStoreError",
    "DistBackendError",
    "Connection refused",
    "Socket closed",
    "Application timeout caused pair closure",
    "remote process exited",
    "ncclRemoteError",
    "NCCL communicator was aborted",
    "Watchdog caught collective operation timeout",
    "recvValue failed",
)
"""What gloo, NCCL and the store say when another rank goes away; for programs that write no failure report."""

FREE = frozenset({Cause.STOPPED, Cause.POD_DELETED, Cause.NODE_LOST})
"""Disruptions: nobody's fault in the job, so they cost nothing of the budget."""

FINAL = frozenset({Cause.CONFIG_ERROR, Cause.STORAGE_FULL, Cause.START_ERROR})
"""Trying again cannot help."""


@dataclass(frozen=True, slots=True)
class _Report:
    """What a failed trainer said of itself."""

    cause: Cause | None
    message: str
    step: int | None


def failure_of(pod: Pod, attempt: int, now: datetime) -> Failure:
    """The failure of a pod that ended badly, is being deleted by somebody else, or vanished."""
    ended = pod.exit
    if ended is None:
        message = "the pod is being deleted" if pod.deleting else "the pod vanished"
        return _failure(pod, attempt, now, Cause.POD_DELETED, message)
    report = _read(ended.message)
    signal = _signal(ended.code)
    stopped = pod.deleting and signal in STOP_SIGNALS and ended.reason != OOM_KILLED
    cause = Cause.STOPPED if stopped else _cause(ended, signal, report)
    return _failure(
        pod,
        attempt,
        ended.finished_at or now,
        cause,
        report.message or _described(ended, signal),
        exit_code=ended.code,
        signal=signal,
        step=report.step,
    )


def lost_with_its_node(pod: Pod, attempt: int, now: datetime) -> Failure:
    """The failure of a pod that was told to end, and of which nobody says that it has."""
    return _failure(pod, attempt, pod.gone_by or now, Cause.NODE_LOST, f"node {pod.node} does not answer")


def lost_pod(name: str, rank: int, incarnation: int) -> Pod:
    """Stands for a pod that was there and is not any more."""
    return Pod(name=name, uid="", rank=rank, incarnation=incarnation)


def first_of(failures: list[Failure]) -> Failure:
    """The incident that these failures make up: the first of them, with the others as its consequences."""
    ordered = sorted(failures, key=_order)
    first, others = ordered[0], ordered[1:]
    tied = first.tied or any(_order(other)[:2] == _order(first)[:2] for other in others)
    return _with_consequences(first.model_copy(update={"tied": tied}), {other.rank for other in others})


def amended(known: Failure, later: list[Failure]) -> Failure:
    """A known incident in the light of what other pods of its attempt have said since.

    Those that only stopped when they were told to are not part of it.
    """
    others = [failure for failure in later if failure.rank != known.rank and failure.cause is not Cause.STOPPED]
    incident = first_of([known, *others])
    ranks = {known.rank, *known.consequence_ranks, *(failure.rank for failure in others)} - {incident.rank}
    return _with_consequences(incident, ranks, at_least=known.consequences)


def _with_consequences(first: Failure, ranks: set[int], *, at_least: int = 0) -> Failure:
    """The incident with its consequences. Only some of them have names, so their number may be known to be larger."""
    named = tuple(sorted(ranks)[:CONSEQUENCES_NAMED])
    return first.model_copy(update={"consequences": max(len(ranks), at_least), "consequence_ranks": named})


def _order(failure: Failure) -> tuple[int, datetime, int]:
    return _kind(failure), failure.time, failure.rank


def _kind(failure: Failure) -> int:
    """Kinds of failure, those that cause others first."""
    match failure.cause:
        case Cause.OUT_OF_MEMORY:
            return 0
        case Cause.STOPPED:
            return 3
        case Cause.PEER_LOST:
            return 4
        case Cause.POD_DELETED | Cause.NODE_LOST:
            return 1
        case _:
            return 1 if failure.signal else 2


def _cause(ended: Exit, signal: int | None, report: _Report) -> Cause:
    if ended.reason == OOM_KILLED:
        return Cause.OUT_OF_MEMORY
    if ended.reason in {"StartError", "ContainerCannotRun"}:
        return Cause.START_ERROR
    if ended.code == ExitCode.SAVED_AND_STOPPED or signal == SIGTERM:
        return Cause.STOPPED
    if report.cause is not None:
        return report.cause
    lost = any(phrase in ended.message for phrase in PEER_LOST_PHRASES)
    return Cause.PEER_LOST if lost else Cause.APPLICATION


def _failure(pod: Pod, attempt: int, time: datetime, cause: Cause, message: str, **more: Any) -> Failure:
    return Failure(
        time=time,
        attempt=attempt,
        rank=pod.rank,
        pod=pod.name,
        node=pod.node,
        cause=cause,
        message=_cut(message),
        **more,
    )


def _signal(code: int | None) -> int | None:
    return code - SIGNAL_BASE if code is not None and code - SIGNAL_BASE in SIGNALS else None


def _described(ended: Exit, signal: int | None) -> str:
    """The last words of a program that wrote no report: the end of its log, else how it ended."""
    lines = [line.strip() for line in ended.message.splitlines() if line.strip()]
    if ended.code is None:
        how = ended.reason or "ended without an exit code"
    else:
        how = f"killed by signal {signal}" if signal else f"exit code {ended.code}"
    return lines[-1] if lines and not signal else how


def _read(message: str) -> _Report:
    """A failure report, or an empty one where the message is something else: it is a program's word, not ours."""
    try:
        report = json.loads(message)
    except (ValueError, RecursionError):
        return _Report(None, "", None)
    if not isinstance(report, dict):
        return _Report(None, "", None)
    exception, text, step = report.get("exception"), report.get("message"), report.get("step")
    words = ": ".join(str(part) for part in (exception, text) if part)
    cause = next((cause for cause in Cause if cause == report.get("cause")), None)
    counted = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= LARGEST_STEP
    return _Report(cause, words, step if counted else None)


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:MESSAGE_BYTES].decode(errors="ignore")

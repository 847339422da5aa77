"""The document of GET /status, built from the supervisor's data about its gang. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ddpjob_rank.failure.failure_report import VERSION
from ddpjob_rank.moments import rfc3339
from ddpjob_rank.recording.json_lines import in_json
from msgspec import to_builtins

from ddpjob_supervisor.gang.messages import CodeRevision, FailedCode, Incident
from ddpjob_supervisor.gang.states import Delay, Phase, Stall
from ddpjob_supervisor.watch.beat import BeatDocument, finite
from ddpjob_supervisor.watch.blame import Observation, place_of
from ddpjob_supervisor.watch.checkpoint_requests import RequestOutcome

from .progress import Progress
from .stragglers import Straggler

Document = dict[str, Any]

NO_CODE = CodeRevision()
NODES = 8
INCIDENTS = 16
PROCESSES = 64
"""The largest number of processes of a gang whose document lists each process."""
METRICS = 16
"""How many metrics of each process are listed: those that the process reported first."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Proportional set sizes (PSS) of processes on this node, in bytes; None if unknown."""

    zygote: int | None = None
    supervisor: int | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """The data of rank 0's supervisor about the whole gang, or of another supervisor about its own node.

    Only rank 0's supervisor sets the fields after `phase`, except for `beats` and `memory`. Times are in seconds
    since the epoch.
    """

    uid: str
    nodes: int
    procs_per_node: int
    attempt: int
    phase: Phase
    since: float = 0.0
    """When the phase began."""
    first_step_seen: bool = False
    order: Sequence[int] = ()
    """The nodes in the order of their ranks; empty for numerical order."""
    missing: Sequence[int] = ()
    """The numbers of the nodes whose supervisors are not connected."""
    in_place_restarts: int = 0
    incidents: Sequence[Incident] = ()
    """All incidents, or at least the last 16; the oldest first."""
    beats: Sequence[BeatDocument] = ()
    """The last report of each known process."""
    progress: Progress | None = None
    slowest_node: int | None = None
    stall_limit: float | None = None
    """How many seconds the gang may go without finishing a step."""
    last_point: int = 0
    """The number of the last record of GET /curve."""
    checkpoint: Mapping[str, Any] | None = None
    """The last checkpoint, with its `step` and `time` as in the beats."""
    requested: RequestOutcome | None = None
    """What has come of the last request for a checkpoint; None if nobody can make one."""
    stall: Stall | None = None
    delay: Delay | None = None
    stopped: str = ""
    """Which ranks are stopped by a signal or a debugger, in a sentence; empty: none is."""
    hold: str = ""
    """What a held gang does, in a clause; empty if the gang is not held."""
    code: CodeRevision = NO_CODE
    """The code that the ranks run; without a digest if it is in the image."""
    has_untried_code: bool = False
    """Whether this code has taken the place of other code, and has not finished a step yet."""
    failed_code: FailedCode | None = None
    """The last new code that failed before its first step."""
    stragglers: Sequence[Straggler] = ()
    memory: Memory = Memory()
    coordinator: str | None = None
    """The control address of rank 0's supervisor; None if this is rank 0's supervisor."""
    now: float = 0.0
    """When this data was read. A reader whose clock differs needs it to find out how long ago the other times
    were."""


def document(gang: Gang) -> Document:
    """The answer to GET /status."""
    content: Document = {
        "version": VERSION,
        "job": fingerprint(gang.uid),
        "now": rfc3339(gang.now),
        "mark": mark(gang),
        "nodes": gang.nodes,
        "procsPerNode": gang.procs_per_node,
        "attempt": gang.attempt,
        "phase": gang.phase,
        "memory": {"zygotePssBytes": gang.memory.zygote, "supervisorPssBytes": gang.memory.supervisor},
    }
    content |= _of_all(gang) if gang.coordinator is None else {"coordinator": gang.coordinator}
    if gang.procs_per_node * (gang.nodes if gang.coordinator is None else 1) <= PROCESSES:
        content["ranks"] = [_rank(beat) for beat in sorted(gang.beats, key=lambda beat: beat["rank"])]
    return content


def in_groups(observations: Mapping[int, Observation], world_size: int) -> list[Document]:
    """What ranks are doing. Ranks with the same stack are grouped; a stack begins with its innermost frame."""
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for rank in range(world_size):
        observation = observations.get(rank, Observation(rank))
        groups.setdefault((place_of(observation), observation.stack), []).append(rank)
    return [{"ranks": ranks, "does": does, "stack": list(stack)} for (does, stack), ranks in groups.items()]


def _of_all(gang: Gang) -> Document:
    """The part of the document that only rank 0's supervisor can fill."""
    return {
        "since": rfc3339(gang.since),
        "firstStepSeen": gang.first_step_seen,
        **({"order": list(gang.order)} if gang.order else {}),
        "missing": list(gang.missing[:NODES]),
        "inPlaceRestarts": gang.in_place_restarts,
        "incidents": [incident.to_document() for incident in gang.incidents[-INCIDENTS:]],
        "progress": _progress(gang),
        "checkpoint": gang.checkpoint and {name: gang.checkpoint[name] for name in ("step", "time")},
        "requestedCheckpoint": gang.requested and to_builtins(gang.requested),
        "stall": _stall(gang.stall),
        "firstStepDelay": gang.delay and {"since": rfc3339(gang.delay.since), "message": gang.delay.message},
        "stoppedRanks": {"message": gang.stopped} if gang.stopped else None,
        **({"hold": {"message": gang.hold}} if gang.hold else {}),
        **({"code": _code(gang)} if gang.code.digest else {}),
        "stragglers": [_straggler(straggler) for straggler in gang.stragglers],
    }


def fingerprint(uid: str) -> str:
    """A hash by which readers recognize the job, without learning the job's uid."""
    return hashlib.sha256(uid.encode()).hexdigest()[:32]


def mark(gang: Gang) -> str:
    """A hash that changes whenever something changes that a reader should learn immediately.

    Later steps of an attempt do not change it, because regular reads report them. The first step does, because a
    short attempt may be over before the next regular read.
    """
    matters = (
        gang.uid,
        gang.attempt,
        gang.phase,
        list(gang.missing),
        gang.in_place_restarts,
        gang.first_step_seen,
        gang.incidents[-1].attempt if gang.incidents else None,
        _of_progress(gang.progress),
        gang.requested and to_builtins(gang.requested),
        gang.stall and (gang.stall.since, gang.stall.rank, gang.stall.message),
        gang.delay and gang.delay.message,
        gang.stopped,
        gang.hold,
        gang.code.revision,
        gang.has_untried_code,
        gang.failed_code and gang.failed_code.revision,
        sorted(straggler.rank for straggler in gang.stragglers),
    )
    return hashlib.sha256(json.dumps(matters).encode()).hexdigest()[:16]


def _of_progress(seen: Progress | None) -> tuple[int, int | None, bool] | None:
    """The progress that readers should learn immediately: where the attempt began, and if the loss is finite."""
    return None if seen is None else (seen.attempt, seen.first, seen.not_finite_since is not None)


def _progress(gang: Gang) -> Document | None:
    seen = gang.progress
    if seen is None:
        return None
    # An estimate holds only while steps are being finished.
    eta = seen.eta_seconds if gang.phase is Phase.RUNNING else None
    return {
        "attempt": seen.attempt,
        "since": None if seen.since is None else rfc3339(seen.since),
        "firstStep": seen.first,
        "begins": seen.begins,
        "activity": seen.activity,
        "activityTime": None if seen.activity_time is None else rfc3339(seen.activity_time),
        "recounts": seen.recounts,
        "epoch": seen.epoch,
        "step": None if seen.anew else seen.step,
        "stepsSinceRestart": seen.step if seen.anew else None,
        "totalSteps": seen.total_steps,
        "percent": seen.percent,
        "etaSeconds": None if eta is None else round(eta),
        "loss": in_json(seen.loss),
        "lossNotFiniteSinceStep": seen.not_finite_since,
        "samplesPerSecond": _rounded(seen.samples_per_second, 1),
        "lastStepTime": None if seen.last_step_time is None else rfc3339(seen.last_step_time),
        "stepSeconds": _rounded(seen.step_seconds, 6),
        "stallLimitSeconds": _rounded(gang.stall_limit, 1),
        "slowestNode": gang.slowest_node,
        "lastPoint": gang.last_point,
    }


def _stall(stall: Stall | None) -> Document | None:
    if stall is None:
        return None
    return {"since": rfc3339(stall.since), "node": stall.node, "rank": stall.rank, "message": stall.message}


def _code(gang: Gang) -> Document:
    code, failed = gang.code, gang.failed_code
    return {
        "revision": code.revision,
        "digest": code.digest,
        **({"by": code.by, "time": rfc3339(code.time), "attempt": code.attempt} if code.attempt else {}),
        **({"untried": True} if gang.has_untried_code else {}),
        **({} if failed is None else {"failed": _failed_code(failed)}),
    }


def _failed_code(failed: FailedCode) -> Document:
    incident = failed.incident
    return {
        "revision": failed.revision,
        "digest": failed.digest,
        "by": failed.by,
        "time": rfc3339(incident.end.time),
        "attempt": incident.attempt,
        "rank": None if incident.is_of_all_ranks else incident.end.rank,
        "message": failed.story,
    }


def _straggler(straggler: Straggler) -> Document:
    return {
        "node": straggler.node,
        "rank": straggler.rank,
        "slowdown": round(straggler.slowdown, 1),
        "slowed": straggler.slowed,
    }


def _rank(beat: BeatDocument) -> Document:
    parts, metrics = beat.get("seconds") or {}, beat.get("metrics") or {}
    return {
        "rank": beat["rank"],
        "node": beat["node"],
        "step": beat.get("step"),
        "activity": beat.get("activity"),
        "stepSeconds": _rounded(beat.get("stepSeconds"), 6),
        "seconds": {part: _rounded(seconds, 6) for part, seconds in parts.items()},
        "memoryBytes": finite(beat.get("memoryBytes")),
        "transport": beat.get("transport"),
        "slowed": beat.get("slowed"),
        "metrics": in_json(dict(islice(metrics.items(), METRICS))),
    }


def _rounded(number: float | None, digits: int) -> float | None:
    number = finite(number)
    return None if number is None else round(number, digits)

"""The document of GET /status, from what the supervisor knows about its gang. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ddpjob_rank.failure.failure_report import VERSION
from ddpjob_rank.moments import rfc3339
from ddpjob_rank.recording.json_lines import in_json

from ddpjob_supervisor.gang.messages import Incident
from ddpjob_supervisor.gang.states import Phase, Stall
from ddpjob_supervisor.watch.beat import BeatDocument, finite

from .progress import Progress
from .stragglers import Straggler

Document = dict[str, Any]

NODES = 8
INCIDENTS = 16
PROCESSES = 64
"""The document of a larger gang does not list its processes."""
METRICS = 16
"""How many numbers of each process are listed: the first ones that it has reported."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Proportional set sizes in bytes, of this node's processes; None: unknown."""

    zygote: int | None = None
    supervisor: int | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """What a supervisor knows: rank 0's about the whole gang, another about itself. Times are seconds of the epoch.

    Only rank 0's knows what follows the phase, except for the others' own beats and memory.
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
    """The nodes in the order of their ranks; empty: by number."""
    missing: Sequence[int] = ()
    """Nodes, by number, whose supervisor is not connected."""
    in_place_restarts: int = 0
    incidents: Sequence[Incident] = ()
    """All, or at least the last 16; the oldest first."""
    beats: Sequence[BeatDocument] = ()
    """The last report of each known process."""
    progress: Progress | None = None
    slowest_node: int | None = None
    checkpoint: Mapping[str, Any] | None = None
    """`step` and `time`, as the beats have it."""
    stall: Stall | None = None
    stragglers: Sequence[Straggler] = ()
    memory: Memory = Memory()
    coordinator: str | None = None
    """The control address of rank 0's supervisor, if this is not that one."""
    now: float = 0.0
    """When this was true. It shows readers with another clock how long ago the other times were."""


def document(gang: Gang) -> Document:
    """What GET /status answers."""
    said: Document = {
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
    said |= _of_all(gang) if gang.coordinator is None else {"coordinator": gang.coordinator}
    if gang.procs_per_node * (gang.nodes if gang.coordinator is None else 1) <= PROCESSES:
        said["ranks"] = [_rank(beat) for beat in sorted(gang.beats, key=lambda beat: beat["rank"])]
    return said


def _of_all(gang: Gang) -> Document:
    """What only rank 0's supervisor knows."""
    return {
        "since": rfc3339(gang.since),
        "firstStepSeen": gang.first_step_seen,
        **({"order": list(gang.order)} if gang.order else {}),
        "missing": list(gang.missing[:NODES]),
        "inPlaceRestarts": gang.in_place_restarts,
        "incidents": [incident.to_document() for incident in gang.incidents[-INCIDENTS:]],
        "progress": _progress(gang),
        "checkpoint": gang.checkpoint and {name: gang.checkpoint[name] for name in ("step", "time")},
        "stall": _stall(gang.stall),
        "stragglers": [_straggler(straggler) for straggler in gang.stragglers],
    }


def fingerprint(uid: str) -> str:
    """What distinguishes a job from others, for readers that may not know its uid."""
    return hashlib.sha256(uid.encode()).hexdigest()[:32]


def mark(gang: Gang) -> str:
    """Changes whenever something changes that a reader wants to know at once; of progress, only the first step.

    An attempt may be over before its progress is read again.
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
        gang.stall and (gang.stall.since, gang.stall.rank, gang.stall.message),
        sorted(straggler.rank for straggler in gang.stragglers),
    )
    return hashlib.sha256(json.dumps(matters).encode()).hexdigest()[:16]


def _of_progress(seen: Progress | None) -> tuple[int, int | None, bool] | None:
    """What matters of it at once: where an attempt began, and whether the loss is a finite number."""
    return None if seen is None else (seen.attempt, seen.first, seen.not_finite_since is not None)


def _progress(gang: Gang) -> Document | None:
    seen = gang.progress
    if seen is None:
        return None
    # While no step finishes, no end is in sight.
    eta = seen.eta_seconds if gang.phase is Phase.RUNNING else None
    return {
        "attempt": seen.attempt,
        "since": None if seen.since is None else rfc3339(seen.since),
        "firstStep": seen.first,
        "begins": seen.begins,
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
        "slowestNode": gang.slowest_node,
    }


def _stall(stall: Stall | None) -> Document | None:
    if stall is None:
        return None
    return {"since": rfc3339(stall.since), "node": stall.node, "rank": stall.rank, "message": stall.message}


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

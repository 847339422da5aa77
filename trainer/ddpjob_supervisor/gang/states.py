"""The states of a gang, what is known of its present attempt, and of its members. Only the coordinator changes them.

    Gathering --all are there--> Running --a rank failed, a node left--> Stopping --no rank runs--> Gathering
        |                         ^ |                                     ^  ^          |
        +--to be tested--> Preflight| +--no step for too long--> Stalled--+  |          +--> Done
                            +-------+----------------------------------------+

What is true only in one state is in that state's value. Times are seconds of the epoch, by the coordinator's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

from ddpjob_supervisor.watch.blame import Observation

from .messages import End, Incident
from .ring import Ring


class Phase(StrEnum):
    """A state's name, as the status page shows it."""

    GATHERING = "Gathering"
    PREFLIGHT = "Preflight"
    RUNNING = "Running"
    STALLED = "Stalled"
    STOPPING = "Stopping"
    DONE = "Done"


@dataclass(frozen=True, slots=True)
class State:
    """What a gang does, and since when."""

    since: float

    @property
    def phase(self) -> Phase:
        """Its name."""
        return Phase(type(self).__name__)


@dataclass(frozen=True, slots=True)
class Gathering(State):
    """Some supervisors are missing, or about to leave."""

    inherited: bool = False
    """Whether there was a coordinator before, and this one has not started an attempt yet."""
    lost: Mapping[int, int] = field(default_factory=dict)
    """Nodes whose supervisors disappeared in the last attempt, and their incarnations: if these come back, nobody but
    the gang knows of that. Empty if another incident accounts for the attempt's end."""


class Preflight(State):
    """The machines are being tested."""


@dataclass(frozen=True, slots=True)
class Running(State):
    """The ranks of an attempt run."""

    parting_since: float | None = None
    """Since when some have ended, or lost peers, because nodes are told to stop: as a rule all are, one after the
    other, and those that do not know it yet may have something to save."""


@dataclass(frozen=True, slots=True)
class Stalled(State):
    """They make no progress, and the reason is being found."""

    observations: Mapping[int, tuple[Observation, ...]] = field(default_factory=dict)
    """By node, of those that have answered."""


@dataclass(frozen=True, slots=True)
class Stopping(State):
    """The ranks are being ended."""

    verdict: Incident | None = None
    """What ended the attempt, if the ends of its ranks do not show it."""
    settling_since: float | None = None
    """Since when no rank has run, while it is unknown whom the ranks have lost."""


@dataclass(frozen=True, slots=True)
class Done(State):
    """There will be no other attempt: rank 0's ranks are done, or the operator has to deal with the incident."""

    succeeded: bool = False
    """Whether rank 0's ranks are done."""


@dataclass(frozen=True, slots=True)
class Stall:
    """No rank has finished a step for too long."""

    since: float
    node: int | None = None
    """The one of the rank that is to blame, once that is known."""
    rank: int | None = None
    """That rank."""
    message: str = ""


@dataclass(slots=True)
class Attempt:
    """How an attempt goes, or went, until the next one starts."""

    number: int
    ring: Ring
    began: float
    ran: float = 0.0
    """Seconds until it was stopped."""
    progressed: bool = False
    """Whether any rank has finished a step."""
    stall: Stall | None = None
    ends: dict[int, tuple[End, ...]] = field(default_factory=dict)
    """By node, including those that are gone by now."""
    heard: dict[int, float] = field(default_factory=dict)
    """When a node first reported a failure, or its end."""
    left: dict[int, int | None] = field(default_factory=dict)
    """By node, which supervisor left: its incarnation, or None if it had announced that."""


class MemberState(Enum):
    """What the ranks of a member do."""

    IDLE = "idle"
    BUSY = "busy"
    DONE = "done"
    """They have ended well, and the coordinator has let the member go."""


@dataclass(slots=True)
class Member:
    """A supervisor that is connected."""

    incarnation: int
    address: str
    attempt: int
    domain: str | None = None
    """As in its Hello."""
    state: MemberState = MemberState.IDLE
    leaving: bool = False
    beats: tuple[dict[str, Any], ...] = ()
    """The last reports of its processes, each with `node`, the node's number."""
    running: tuple[int, ...] = ()
    """Its processes that have not ended."""

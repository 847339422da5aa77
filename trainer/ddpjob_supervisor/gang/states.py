"""The states of a gang, with data about its present attempt and its members. Only the coordinator changes them.

    Gathering --all are there--> Running --a rank failed, a node left--> Stopping --no rank runs--> Gathering
        |                         ^ |                                     ^  ^          |
        +--to be tested--> Preflight| +--no step for too long--> Stalled--+  |          +--> Done
                            +-------+----------------------------------------+

A held gang has one more state: Gathering --all are there--> Holding --a program is sent--> Running. An attempt is
never followed by another one without a program: Stopping --no rank runs--> Gathering. After its idle limit,
Holding --> Done.

Data that exists only in one state is a field of that state. Times are in seconds since the epoch, on the
coordinator's clock.
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
    HOLDING = "Holding"
    PREFLIGHT = "Preflight"
    RUNNING = "Running"
    STALLED = "Stalled"
    STOPPING = "Stopping"
    DONE = "Done"


@dataclass(frozen=True, slots=True)
class State:
    """What a gang is doing, and since when."""

    since: float

    @property
    def phase(self) -> Phase:
        """The state's name."""
        return Phase(type(self).__name__)


@dataclass(frozen=True, slots=True)
class Gathering(State):
    """Some supervisors are missing, or about to leave."""

    inherited: bool = False
    """Whether this coordinator replaces a former one, and has not started an attempt yet."""
    lost: Mapping[int, int] = field(default_factory=dict)
    """The incarnations of supervisors that disappeared in the last attempt, by node number.

    If the same incarnation comes back, only the coordinator can report that it was out of reach. Empty if another
    incident explains why the attempt ended."""


class Holding(State):
    """All supervisors of a held gang are there, and no program runs."""


class Preflight(State):
    """The machines are being tested."""


@dataclass(frozen=True, slots=True)
class Running(State):
    """The ranks of an attempt run."""

    parting_since: float | None = None
    """When the first rank ended, or lost a peer, because a node was told to stop; None if this has not happened.

    Usually all nodes are told to stop, one after the other, and the ranks of the last nodes may still have to save.
    """


@dataclass(frozen=True, slots=True)
class Stalled(State):
    """The ranks make no progress, and the reason is being investigated."""

    observations: Mapping[int, tuple[Observation, ...]] = field(default_factory=dict)
    """What the ranks were doing, by node. Contains only the nodes that have answered."""


@dataclass(frozen=True, slots=True)
class Stopping(State):
    """The ranks are being ended."""

    verdict: Incident | None = None
    """Why the attempt ended, if that cannot be told from how its ranks exited."""
    settling_since: float | None = None
    """When the last rank ended, if ranks have lost a peer and it is not known yet which node is gone."""


@dataclass(frozen=True, slots=True)
class Done(State):
    """There will be no other attempt: node 0's ranks are done, or the operator has to deal with the incident."""

    succeeded: bool = False
    """Whether node 0's ranks are done."""


@dataclass(frozen=True, slots=True)
class Stall:
    """No rank has finished a step for too long."""

    since: float
    node: int | None = None
    """The node of the rank that is to blame; None if it is not known."""
    rank: int | None = None
    """The rank that is to blame; None if it is not known."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Delay:
    """The first step of an attempt is late, which may or may not be a hang."""

    since: float
    seconds: float
    """How long the attempt had waited for its first step when the ranks were last examined."""
    message: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How the last run of a program in a held gang has ended."""

    attempt: int
    exit_code: int
    """0, or the exit code of the rank that failed first."""
    message: str = ""
    """Why it ended, in a clause; empty if it is done."""
    incident: Incident | None = None
    """Which rank failed first; None if none has."""


@dataclass(slots=True)
class Attempt:
    """The present attempt. Between two attempts, the last one."""

    number: int
    ring: Ring
    began: float
    ran: float = 0.0
    """How many seconds the attempt ran before it was stopped."""
    progressed: bool = False
    """Whether any rank has finished a step."""
    stall: Stall | None = None
    delay: Delay | None = None
    """None: the first step has finished, or is not late yet."""
    stopped: str = ""
    """Which ranks are stopped by a signal or a debugger, in a sentence; empty: none is."""
    looks: dict[int, tuple[Observation, ...]] = field(default_factory=dict)
    """What the ranks were doing when last asked, by node. Contains only the nodes that have answered."""
    ends: dict[int, tuple[End, ...]] = field(default_factory=dict)
    """How the ranks have ended, by node. Includes nodes that have left since."""
    heard: dict[int, float] = field(default_factory=dict)
    """When each node first reported a failure or the end of its ranks."""
    installed: set[int] = field(default_factory=set)
    """The nodes that have the packages of a held gang's program, if it needs any."""
    interrupted: bool = False
    """Whether the person who runs this program in a held gang has stopped it, or is gone."""
    abandoned: bool = False
    """Whether the connection to the command was lost that runs this program in a held gang."""
    replaced: bool = False
    """Whether the attempt is ended because the next one runs new code."""
    code: str = ""
    """The digest of the code that it runs."""
    left: dict[int, int | None] = field(default_factory=dict)
    """The incarnations of the supervisors that have left, by node; None for a supervisor that had been told to
    stop."""


class MemberState(Enum):
    """What the ranks of a member are doing."""

    IDLE = "idle"
    BUSY = "busy"
    DONE = "done"
    """The ranks have finished, and the coordinator has told the member that it may leave."""


@dataclass(slots=True)
class Member:
    """A supervisor that is connected to the coordinator."""

    incarnation: int
    address: str
    attempt: int
    domain: str | None = None
    """The member's topology domain, as in `Hello.domain`."""
    state: MemberState = MemberState.IDLE
    leaving: bool = False
    beats: tuple[dict[str, Any], ...] = ()
    """The last report of each of the member's ranks, with the node's number as `node`."""
    running: tuple[int, ...] = ()
    """The member's ranks that have not ended."""

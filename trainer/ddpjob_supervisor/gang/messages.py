"""The messages between supervisors over the control port: one JSON object per line.

Rank 0's supervisor leads. A member opens the connection, sends Hello, proves it (`proof`), and receives Welcome,
Elsewhere or Refused.
"""

import dataclasses
import json
import re
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.exit_codes import SIGNAL_BASE
from ddpjob_rank.moments import rfc3339

from ddpjob_supervisor.watch import beat

PROTOCOL = 4
"""Raised with every change that an older supervisor could misunderstand."""

FIRST_WITH_PROOF = 3
"""Older ones do not understand a Challenge."""

NAMED = 8
"""How many of the nodes that failed with the first one are named: no reader shows more."""

INCIDENTS_KEPT = 16

KIND_OF = re.compile(r"(Error|Failed|Exception)$")

SIGNALS = range(SIGNAL_BASE + 1, SIGNAL_BASE + 65)
"""Exit codes that stand for a signal."""


@dataclass(frozen=True, slots=True)
class End:
    """How one rank of an attempt ended."""

    process: int
    """Its rank among all processes."""
    exit_code: int
    """128+n for signal n."""
    time: float
    """Seconds since the epoch."""
    cause: str = ""
    """As in a failure report; empty if the rank did not fail."""
    message: str = ""
    exception: str | None = None
    step: int | None = None
    begun: dict[str, int] = field(default_factory=dict)
    """Of a rank that failed in a collective of NCCL: how many it had begun, by group and backend, if it said so."""
    waited: str = ""
    """The collective in which it waited for others until it gave up; empty: none."""

    @property
    def words(self) -> str:
        """Why it failed, in the operator's words: an exception that only repeats the cause is left out."""
        exception = self.exception or ""
        again = KIND_OF.sub("", exception) == KIND_OF.sub("", self.cause)
        return ": ".join(part for part in (self.cause, "" if again else exception, self.message) if part)


@dataclass(frozen=True, slots=True)
class Incident:
    """What ended an attempt: the rank that failed first, and how many failed with it."""

    attempt: int
    rank: int
    """The node's."""
    end: End
    tied: bool = False
    consequences: int = 0
    """How many other nodes failed with it."""
    consequence_ranks: tuple[int, ...] = ()
    """The first of them, at most NAMED."""

    def to_document(self) -> dict[str, Any]:
        """As on the status page and in failure reports."""
        end = self.end
        return {
            "attempt": self.attempt,
            "time": rfc3339(end.time),
            "rank": self.rank,
            "process": end.process,
            "cause": end.cause,
            "exitCode": end.exit_code,
            "signal": end.exit_code - SIGNAL_BASE if end.exit_code in SIGNALS else None,
            "exception": end.exception,
            "message": end.message,
            "step": end.step,
            "tied": self.tied,
            "consequences": self.consequences,
            "consequenceRanks": list(self.consequence_ranks),
        }


@dataclass(frozen=True, slots=True)
class Past:
    """What a gang knows about its former attempts. Each member has it, so that a new leader can go on from it."""

    incidents: tuple[Incident, ...] = ()
    """The last INCIDENTS_KEPT that led to a restart in place, the oldest first."""
    restarts: int = 0
    """All restarts in place."""
    recent: tuple[float, ...] = ()
    """The times of those that may still be in the window, by the leader's clock."""
    fruitless: int = 0
    """Attempts in a row that got nowhere."""
    ran: float = 0.0
    """Seconds of running."""
    failures: int = 0
    """Failed ranks and lost nodes."""

    @property
    def mean_time_to_failure(self) -> float | None:
        """Seconds of running per failure; None before the first."""
        return self.ran / self.failures if self.failures else None


@dataclass(frozen=True, slots=True)
class Hello:
    """A member's first message."""

    uid: str
    node: int
    incarnation: int
    attempt: int
    """The last attempt that it knows of."""
    port: int
    """The port on which it listens."""
    release: str
    """Version of its image's ddpjob."""
    protocol: int = PROTOCOL
    sent: float = 0.0
    """When it was sent by its clock, in seconds since the epoch."""
    nonce: str = ""
    domain: str | None = None
    """The topology domain of its machine; empty: not known yet. None: it knows of none, nor of an order of nodes."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """The answer to a first message: it has to be sent again, with proof."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The leader's answer."""

    release: str
    heard: float = 0.0
    """When Hello came, by the leader's clock."""
    incarnation: int = 0
    """The leader's."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The caller has another version, or is from another job: the connection ends."""

    why: str
    for_good: bool
    """Whether trying again cannot help."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The answer of one that is not the leader, but knows its address."""

    address: str
    incarnation: int = 0
    """Of that leader; 0: unknown."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Rank 0's supervisor is new. It announces itself to the living ones, and they pass it on to the rest."""

    uid: str
    incarnation: int
    address: str
    """`host:port`; without a host if the connection comes from there."""
    nonce: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The answer to Announce."""

    attempt: int
    """The last attempt that it knows of."""
    past: Past = Past()


@dataclass(frozen=True, slots=True)
class Start:
    """Fork the ranks of an attempt."""

    attempt: int
    port: int
    """Of this attempt's store, on rank 0's node."""
    members: dict[str, str]
    """Address of each member by node rank, to tell them about a new leader."""
    past: Past = Past()
    check: bool = False
    """Whether it tests the machines instead of running the program."""
    order: tuple[int, ...] | None = None
    """The nodes in the order of their ranks; None: by number."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the ranks of an attempt at once."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Examine:
    """Report what each rank is doing: the gang has stalled."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Leave:
    """End the pod with this incident: the operator decides what to do about it."""

    incident: Incident


@dataclass(frozen=True, slots=True)
class Farewell:
    """Your ranks are done, which is known now, or rank 0's are, and its supervisor goes: finish by yourself."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A rank of mine has failed."""

    attempt: int
    cause: str = ""
    waited: bool = False
    """Whether it waited in a collective until it gave up: then another one did not come to it."""


@dataclass(frozen=True, slots=True)
class Idle:
    """None of my ranks runs any more; with why each has ended."""

    attempt: int
    ends: tuple[End, ...] = ()
    progressed: bool = False
    """Whether any had finished a step."""


@dataclass(frozen=True, slots=True)
class Done:
    """All my ranks have exited with 0. The answer is Farewell, unless the attempt is already being stopped."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """I was told to stop, and leave once my ranks have ended."""


@dataclass(frozen=True, slots=True)
class Located:
    """The topology domain of my machine, which I may not have known before. Only for a leader that orders nodes."""

    domain: str


@dataclass(frozen=True, slots=True)
class Beats:
    """What my ranks are doing. Also shows that I am alive."""

    attempt: int
    beats: tuple[dict[str, Any], ...] = ()
    running: tuple[int, ...] = ()
    """Processes that have not ended."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What each of my ranks was found doing."""

    attempt: int
    findings: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Ping:
    """The leader is alive."""


Message = (
    Hello
    | Challenge
    | Welcome
    | Refused
    | Elsewhere
    | Announce
    | History
    | Start
    | Stop
    | Examine
    | Leave
    | Farewell
    | Failed
    | Idle
    | Done
    | Leaving
    | Located
    | Beats
    | Examined
    | Ping
)

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in Message.__args__}

LASTING = (Hello, Announce, Challenge, Refused)
"""Sent before the other side's version is known. Their fields stay the same forever; a later version may add others,
which this one ignores."""


class UnreadableError(TrainerError):
    """Something received on the control port is not a message of this version."""


class OtherVersionError(ConfigError):
    """The other supervisor's version cannot work with this one's."""


def to_line(message: Message) -> bytes:
    """A message as it is sent. What it does not say is left out: an older supervisor may not know of it."""
    said = {name: value for name, value in dataclasses.asdict(message).items() if value is not None}
    return json.dumps({"kind": type(message).__name__, **said}).encode() + b"\n"


def from_line(line: bytes) -> Message:
    """A message from the line that was received.

    Raises:
        UnreadableError: It is not a message.
    """
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("kind")]
        if kind in LASTING:
            fields = {name: value for name, value in fields.items() if name in kind.__match_args__}
        message: Message = _made(kind, fields)
        for told in message.beats if isinstance(message, Beats) else ():
            beat.check(told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"{line[:80]!r} is not a message between supervisors of this version") from error
    return message


T = TypeVar("T")
_hints = cache(get_type_hints)


def _made(kind: type[T], fields: dict[str, Any]) -> T:
    """A dataclass from its fields. Wrong types, unknown fields and missing ones raise a TypeError."""
    hints = _hints(kind)  # type: ignore[arg-type]
    return kind(**{name: _read(hints.get(name), value) for name, value in fields.items()})


def _read(hint: Any, value: Any) -> Any:
    """A value from its JSON form."""
    if hint is Any:
        return value
    inner = get_args(hint)
    if isinstance(hint, UnionType):
        return None if value is None else _read(inner[0], value)
    if dataclasses.is_dataclass(hint):
        return _made(hint, value)  # type: ignore[arg-type]
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_read(inner[0], one) for one in value)
    if get_origin(hint) is dict and isinstance(value, dict):
        return value if inner[1] is Any else {name: _read(inner[1], one) for name, one in value.items()}
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        raise TypeError(f"{value!r} is no {hint}")
    return value

"""The messages between supervisors over the control port: one JSON object per line.

Rank 0's supervisor is the coordinator. A member opens the connection, sends Hello, proves it (`proof`), and receives
Welcome, Elsewhere or Refused. `node` is a node's number, and `rank` a process's among all.
"""

import json
import re
from typing import Any

import msgspec
from ddpjob_rank.errors import ConfigError, TrainerError
from ddpjob_rank.exit_codes import SIGNAL_BASE
from ddpjob_rank.moments import rfc3339

from ddpjob_supervisor.watch.beat import BeatFields
from ddpjob_supervisor.watch.blame import Observation

PROTOCOL = 7
"""Raised with every change that an older supervisor could misunderstand."""

NAMED = 8
"""How many of the nodes that failed with the first one are named: no reader shows more."""

INCIDENTS_KEPT = 16

KIND_OF = re.compile(r"(Error|Failed|Exception)$")

SIGNALS = range(SIGNAL_BASE + 1, SIGNAL_BASE + 65)
"""Exit codes that stand for a signal."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What only supervisors of the same version send to each other."""


class _Message(_Strict, frozen=True, tag=True, tag_field="kind"):
    """Its kind is the name of its class."""


class _LastingMessage(_Message, frozen=True, forbid_unknown_fields=False, omit_defaults=False):
    """Sent before the other side's version is known: its fields stay the same forever.

    A later version may add others, which this one ignores.
    """


class End(_Strict, frozen=True):
    """How one rank of an attempt ended."""

    rank: int
    """Which one: its RANK."""
    exit_code: int
    """128+n for signal n."""
    time: float
    """Seconds since the epoch."""
    cause: str = ""
    """As in a failure report; empty if the rank did not fail."""
    message: str = ""
    exception: str | None = None
    step: int | None = None
    begun: dict[str, int] = {}
    """Of a rank that failed in a collective of NCCL: how many it had begun, by group and backend, if it said so."""
    waited: str = ""
    """The collective in which it waited for others until it gave up; empty: none."""

    @property
    def words(self) -> str:
        """Why it failed, in the operator's words: an exception that only repeats the cause is left out."""
        exception = self.exception or ""
        again = KIND_OF.sub("", exception) == KIND_OF.sub("", self.cause)
        return ": ".join(part for part in (self.cause, "" if again else exception, self.message) if part)


class Incident(_Strict, frozen=True):
    """What ended an attempt: the rank that failed first, and how many failed with it."""

    attempt: int
    node: int
    end: End
    tied: bool = False
    consequences: int = 0
    """How many other nodes failed with it."""
    consequence_nodes: tuple[int, ...] = ()
    """The first of them, at most NAMED."""

    def to_document(self) -> dict[str, Any]:
        """As on the status page and in failure reports."""
        end = self.end
        return {
            "attempt": self.attempt,
            "time": rfc3339(end.time),
            "node": self.node,
            "rank": end.rank,
            "cause": end.cause,
            "exitCode": end.exit_code,
            "signal": end.exit_code - SIGNAL_BASE if end.exit_code in SIGNALS else None,
            "exception": end.exception,
            "message": end.message,
            "step": end.step,
            "tied": self.tied,
            "consequences": self.consequences,
            "consequenceNodes": list(self.consequence_nodes),
        }


class Past(_Strict, frozen=True):
    """What a gang knows of its former attempts. Each member has it, so that a new coordinator can go on from it."""

    incidents: tuple[Incident, ...] = ()
    """The last INCIDENTS_KEPT that led to a restart in place, the oldest first."""
    restarts: int = 0
    """All restarts in place."""
    recent: tuple[float, ...] = ()
    """The times of those that may still be in the window, by the coordinator's clock."""
    fruitless: int = 0
    """Attempts in a row that got nowhere."""
    ran: float = 0.0
    """Seconds of running."""
    failures: int = 0
    """Attempts that a failed rank or a lost node ended."""

    @property
    def mean_time_to_failure(self) -> float | None:
        """Seconds of running per failure; None before the first."""
        return self.ran / self.failures if self.failures else None


class Hello(_LastingMessage, frozen=True):
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
    at: str = ""
    """Its end of the connection, as `host:port`: the other side has to see the same."""
    domain: str | None = None
    """The topology domain of its machine; empty: not known yet. None: it knows of none, nor of an order of nodes."""


class Challenge(_LastingMessage, frozen=True):
    """The answer to a first message: it has to be sent again, with proof."""

    nonce: str


class Welcome(_Message, frozen=True):
    """The coordinator's answer."""

    release: str
    heard: float = 0.0
    """When Hello came, by the coordinator's clock."""
    incarnation: int = 0
    """The coordinator's."""
    at: str = ""
    """Its end of the connection."""


class Refused(_LastingMessage, frozen=True):
    """The caller has another version, or is from another job: the connection ends."""

    why: str
    for_good: bool
    """Whether trying again cannot help."""


class Elsewhere(_Message, frozen=True):
    """The answer of one that is not the coordinator, but knows its address."""

    address: str
    incarnation: int = 0
    """Of that coordinator; 0: unknown."""


class Announce(_LastingMessage, frozen=True):
    """Rank 0's supervisor is new. It announces itself to the living ones, and they pass it on to the rest."""

    uid: str
    incarnation: int
    address: str
    """`host:port`; without a host if the connection comes from there."""
    nonce: str = ""
    at: str = ""
    """The end of the connection of whoever says this: it need not be rank 0's supervisor."""


class History(_Message, frozen=True):
    """The answer to Announce."""

    attempt: int
    """The last attempt that it knows of."""
    past: Past = Past()


class Start(_Message, frozen=True):
    """Fork the ranks of an attempt."""

    attempt: int
    port: int
    """Of this attempt's store, on rank 0's node."""
    members: dict[str, str]
    """Address of each member by node number, to tell them about a new coordinator."""
    past: Past = Past()
    check: bool = False
    """Whether it tests the machines instead of running the program."""
    order: tuple[int, ...] | None = None
    """The nodes in the order of their ranks; None: by number."""


class Stop(_Message, frozen=True):
    """End the ranks of an attempt at once."""

    attempt: int


class Examine(_Message, frozen=True):
    """Report what each rank is doing: the gang has stalled."""

    attempt: int


class Leave(_Message, frozen=True):
    """End the pod with this incident: the operator decides what to do about it."""

    incident: Incident


class Farewell(_Message, frozen=True):
    """Your ranks are done, which is known now, or rank 0's are, and its supervisor goes: finish by yourself."""


class Failed(_Message, frozen=True):
    """A rank of mine has failed, or hangs for a reason that is known."""

    attempt: int
    cause: str = ""
    waited: bool = False
    """Whether it waited in a collective until it gave up: then another one did not come to it."""
    end: End | None = None
    """Of one that still runs, but was found on a broken GPU: how that counts, whenever and however it ends."""


class Idle(_Message, frozen=True):
    """None of my ranks runs any more; with why each has ended."""

    attempt: int
    ends: tuple[End, ...] = ()
    progressed: bool = False
    """Whether any had finished a step."""


class Finished(_Message, frozen=True):
    """All my ranks have exited with 0. The answer is Farewell, unless the attempt is already being stopped."""

    attempt: int


class Leaving(_Message, frozen=True):
    """I was told to stop, and leave once my ranks have ended."""


class Located(_Message, frozen=True):
    """The topology domain of my machine, which I may not have known before. Only where nodes are ordered."""

    domain: str


class Beats(_Message, frozen=True):
    """What my ranks are doing. Also shows that I am alive."""

    attempt: int
    beats: tuple[BeatFields, ...] = ()
    running: tuple[int, ...] = ()
    """Those that have not ended."""


class Examined(_Message, frozen=True):
    """What each of my ranks was found doing."""

    attempt: int
    observations: tuple[Observation, ...] = ()


class Ping(_Message, frozen=True):
    """The coordinator is alive."""


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
    | Finished
    | Leaving
    | Located
    | Beats
    | Examined
    | Ping
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class UnreadableError(TrainerError):
    """Something received on the control port is not a message of this version."""


class OtherVersionError(ConfigError):
    """The other supervisor's version cannot work with this one's."""


def to_line(message: Message) -> bytes:
    """A message as it is sent."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:  # It quotes the name of a file that is no text.
        return json.dumps(msgspec.to_builtins(message), ensure_ascii=False).encode(errors="replace") + b"\n"


def from_line(line: bytes) -> Message:
    """A message from the line that was received.

    Raises:
        UnreadableError: It is not a message.
    """
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{line[:80]!r} is not a message between supervisors of this version") from error

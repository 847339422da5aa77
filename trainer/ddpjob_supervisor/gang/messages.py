"""The messages between supervisors over the control port: one JSON object per line.

Rank 0's supervisor is the coordinator. A member opens the connection, sends Hello, proves that it belongs to the job
(`proof`), and receives Welcome, Elsewhere or Refused. `node` is a node's number; `rank` is a process's RANK.
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

PROTOCOL = 12
"""The version of this protocol: raised with every change that an older supervisor could misunderstand."""

NAMED = 8
"""How many of the nodes that failed after the first one are named: no reader shows more."""

INCIDENTS_KEPT = 16

STALLED = "Stalled"
"""The cause of an end by a stall."""

KIND_OF = re.compile(r"(Error|Failed|Exception)$")

SIGNALS = range(SIGNAL_BASE + 1, SIGNAL_BASE + 65)
"""Exit codes that stand for a signal."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Data that only supervisors of the same version send to each other."""


class _Message(_Strict, frozen=True, tag=True, tag_field="kind"):
    """A message. Its `kind` in JSON is the name of its class."""


class _LastingMessage(_Message, frozen=True, forbid_unknown_fields=False, omit_defaults=False):
    """A message that is sent before the other side's version is known, so its fields must never change.

    A later version may add fields, which this version ignores.
    """


class End(_Strict, frozen=True):
    """How one rank of an attempt ended."""

    rank: int
    """The rank's RANK."""
    exit_code: int
    """The exit code; 128+n for signal n."""
    time: float
    """Seconds since the epoch."""
    cause: str = ""
    """The cause, as in a failure report; empty if the rank did not fail."""
    message: str = ""
    exception: str | None = None
    step: int | None = None
    counted_steps: int | None = None
    """How many steps the rank had finished in this attempt, if steps are only counted; then `step` is None."""
    begun: dict[str, int] = {}
    """How many collectives the rank had begun, by group and backend. Known only for a rank that failed in NCCL."""
    waited: str = ""
    """The collective in which the rank waited for other ranks until its timeout; empty if there is none."""
    line: str = ""
    """The program's line that raised the exception, such as `train.py:12`; empty if it is not known."""

    @property
    def words(self) -> str:
        """Why the rank failed, in the operator's form, which leaves out an exception that only repeats the cause."""
        exception = self.exception or ""
        repeats = KIND_OF.sub("", exception) == KIND_OF.sub("", self.cause)
        return ": ".join(part for part in (self.cause, "" if repeats else exception, self.message) if part)


class Incident(_Strict, frozen=True):
    """The incident that ended an attempt: which rank failed first, and how many other nodes failed with it."""

    attempt: int
    node: int
    end: End
    tied: bool = False
    consequences: int = 0
    """How many other nodes failed with this one."""
    consequence_nodes: tuple[int, ...] = ()
    """The lowest numbers of these other nodes, at most NAMED."""

    @property
    def is_of_all_ranks(self) -> bool:
        """Whether the gang has stalled, and no rank stands out as the cause."""
        return self.tied and self.end.cause == STALLED

    def to_document(self) -> dict[str, Any]:
        """The incident as JSON, in the form of the status page and of failure reports."""
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
            "stepsSinceRestart": end.counted_steps,
            "tied": self.tied,
            "consequences": self.consequences,
            "consequenceNodes": list(self.consequence_nodes),
        }


class CodeRevision(_Strict, frozen=True):
    """The code that a gang runs, which may be newer than the code with which some of its pods were made."""

    revision: int = 0
    """`spec.code.revision`, which grows with each change; 0 for the code of the job's template."""
    digest: str = ""
    """The SHA-256 of the archive with its files, in hexadecimal; empty if all code is in the image."""
    by: str = ""
    """Who has replaced the code in place, according to the command that sent it; empty if nobody has."""
    time: float = 0.0
    """When it was replaced in place, in seconds since the epoch; 0 if it was not."""
    attempt: int = 0
    """The first attempt after it was replaced in place; 0 if it was not."""


class FailedCode(_Strict, frozen=True):
    """New code that failed before its first step, so that the former code runs again."""

    revision: int
    """`spec.code.revision`, which may still name this code."""
    digest: str
    by: str
    incident: Incident

    @property
    def story(self) -> str:
        """When it failed, which rank failed first, and why, in a clause."""
        incident = self.incident
        who = "all ranks" if incident.is_of_all_ranks else f"rank {incident.end.rank}"
        where = f" ({incident.end.line})" if incident.end.line else ""
        return f"failed in attempt {incident.attempt} before its first step: {who}: {incident.end.words}{where}"


class Past(_Strict, frozen=True):
    """The history of a gang's former attempts. Each member has a copy, from which a new coordinator continues."""

    incidents: tuple[Incident, ...] = ()
    """The last incidents that led to a restart in place, at most INCIDENTS_KEPT, the oldest first."""
    restarts: int = 0
    """The number of all restarts in place."""
    recent: tuple[float, ...] = ()
    """When the restarts that may still be within the window happened, on the coordinator's clock."""
    fruitless: int = 0
    """The number of consecutive attempts, up to now, that made no progress."""
    ran: float = 0.0
    """How many seconds the attempts ran, in total."""
    failures: int = 0
    """The number of attempts that ended because a rank failed or a node was lost."""
    code: CodeRevision = CodeRevision()
    """The code of the present attempt."""
    former: CodeRevision | None = None
    """The code that runs again if the present one fails before its first step; None after that step."""
    failed: FailedCode | None = None
    """The last code that failed before its first step."""

    @property
    def mean_time_to_failure(self) -> float | None:
        """Seconds of running per failure; None before the first failure."""
        return self.ran / self.failures if self.failures else None


class Hello(_LastingMessage, frozen=True):
    """A member's first message."""

    uid: str
    node: int
    incarnation: int
    attempt: int
    """The last attempt of which the member has a record."""
    port: int
    """The port on which the member listens."""
    release: str
    """The version of ddpjob in the member's image."""
    protocol: int = PROTOCOL
    sent: float = 0.0
    """When this message was sent, on the member's clock, in seconds since the epoch."""
    nonce: str = ""
    at: str = ""
    """The member's end of the connection, as `host:port`. The coordinator must see the same address."""
    domain: str | None = None
    """The topology domain of the member's machine. Empty if it is not known yet; None if ranks do not follow
    placement."""
    incident: str = ""
    """The incident after which the operator has made the member's pod, as JSON; empty if there is none."""
    revision: int = 0
    code: str = ""
    """The revision and the digest of the newest code that the member knows, as in CodeRevision."""


class Challenge(_LastingMessage, frozen=True):
    """The answer to a caller's first message: the caller has to send that message again, with proof."""

    nonce: str


class Welcome(_Message, frozen=True):
    """The coordinator's answer to a Hello that it accepts."""

    release: str
    heard: float = 0.0
    """When Hello arrived, on the coordinator's clock, in seconds since the epoch."""
    incarnation: int = 0
    """The coordinator's incarnation."""
    at: str = ""
    """The coordinator's end of the connection, as `host:port`."""


class Refused(_LastingMessage, frozen=True):
    """The answer to a caller that is not accepted, such as one with another version or from another job.

    After this answer the connection is closed.
    """

    why: str
    for_good: bool
    """Whether it is useless to try again."""


class Elsewhere(_Message, frozen=True):
    """The answer to Hello from a supervisor that has the coordinator's address, but is not the coordinator."""

    address: str
    incarnation: int = 0
    """The coordinator's incarnation; 0 if it is unknown."""


class Announce(_LastingMessage, frozen=True):
    """The address of a new supervisor of rank 0.

    The new supervisor sends this message to the supervisors whose addresses it has, and they pass it on to the
    others.
    """

    uid: str
    incarnation: int
    """The incarnation of rank 0's supervisor."""
    address: str
    """The address of rank 0's supervisor: `host:port`, or `:port` if that supervisor sends this itself."""
    nonce: str = ""
    at: str = ""
    """The sender's end of the connection, as `host:port`. The sender need not be rank 0's supervisor."""


class History(_Message, frozen=True):
    """The answer to Announce: the history of former attempts, as far as the supervisor has it."""

    attempt: int
    """The last attempt of which the supervisor has a record."""
    past: Past = Past()


class HeldProgram(_Strict, frozen=True):
    """A program that somebody runs in a held gang."""

    words: tuple[str, ...]
    """Its command line, which `program_of` parses."""
    code: str
    """The SHA-256 of the archive with its files, in hexadecimal."""
    by: str
    """Who runs it, according to the command that sent it."""
    env: dict[str, str] = {}
    """Variables for its ranks, in addition to those of the hold."""
    packages: tuple[str, ...] = ()
    """Packages that it needs besides those of the image, as pip takes them."""
    requirements: str = ""
    """A requirements file among its files that lists such packages; empty if there is none."""

    @property
    def installs(self) -> bool:
        """Whether it needs packages besides those of the image."""
        return bool(self.packages or self.requirements)


class Bring(_Message, frozen=True):
    """Send the next bytes of the archive with this digest, from this offset on.

    A member asks for code that it lacks, piece by piece, so that the coordinator never has more than one piece for
    each member in memory.
    """

    digest: str
    """The SHA-256 of the archive, in hexadecimal."""
    offset: int


class Code(_Message, frozen=True):
    """The answer to Bring."""

    digest: str
    offset: int
    data: bytes | None
    """The next bytes; empty at the end of the archive; None if the coordinator does not have it."""


class Start(_Message, frozen=True):
    """Fork the ranks of an attempt."""

    attempt: int
    port: int
    """The port of this attempt's store, on rank 0's node."""
    members: dict[str, str]
    """The address of each member, by node number. Any member may have to tell the others about a new coordinator."""
    past: Past = Past()
    check: bool = False
    """Whether the attempt tests the machines instead of running the program."""
    order: tuple[int, ...] | None = None
    """The numbers of the nodes in the order of their ranks; None for numerical order."""
    program: HeldProgram | None = None
    """The program to run, if the gang is held; otherwise None, because every supervisor was given the program."""


class Installed(_Message, frozen=True):
    """The sender has the packages of an attempt's program, and waits for Begin."""

    attempt: int


class Begin(_Message, frozen=True):
    """Fork the ranks of an attempt now: all nodes have the packages of its program."""

    attempt: int


class Stop(_Message, frozen=True):
    """End the ranks of an attempt immediately."""

    attempt: int
    also_told: bool = False
    """Whether to end ranks that were told to stop, too. Otherwise these may go on saving."""


class Finish(_Message, frozen=True):
    """Tell the ranks of an attempt to stop: they may save, as when a pod is told to stop. The supervisor stays."""

    attempt: int


class Examine(_Message, frozen=True):
    """Report what each rank is doing: the gang has stalled."""

    attempt: int


class Look(_Message, frozen=True):
    """Report what each rank is doing. This does not mean that anything is wrong."""

    attempt: int


class Leave(_Message, frozen=True):
    """Exit, and report this incident: the operator decides what to do about it."""

    incident: Incident


class Farewell(_Message, frozen=True):
    """The coordinator dismisses the member, which exits when its ranks have ended.

    Sent when the coordinator has learned that the member's ranks are done, or when it is about to exit.
    """


class Failed(_Message, frozen=True):
    """A rank of the sender has failed, or hangs for a known reason."""

    attempt: int
    cause: str = ""
    waited: bool = False
    """Whether the rank timed out in a collective, which means that another rank did not enter that collective."""
    end: End | None = None
    """The end to record for a rank that hangs on a broken GPU, no matter how it ends later."""


class Idle(_Message, frozen=True):
    """All ranks of the sender have ended, but the program is not done there."""

    attempt: int
    ends: tuple[End, ...] = ()
    progressed: bool = False
    """Whether any of the ranks had finished a step."""


class Finished(_Message, frozen=True):
    """All ranks of the sender have exited with 0. The answer is Farewell, unless the attempt is being stopped."""

    attempt: int


class Leaving(_Message, frozen=True):
    """The sender was told to stop, and leaves when its ranks have ended."""


class Located(_Message, frozen=True):
    """The topology domain of the sender's machine, which was not known before.

    Sent only if ranks follow placement.
    """

    domain: str


class Beats(_Message, frozen=True):
    """The last reports of the sender's ranks. This message also shows that the sender is alive."""

    attempt: int
    beats: tuple[BeatFields, ...] = ()
    running: tuple[int, ...] = ()
    """The sender's ranks that have not ended."""


class Examined(_Message, frozen=True):
    """What each of the sender's ranks was doing when the stalled gang was examined."""

    attempt: int
    observations: tuple[Observation, ...] = ()


class Looked(_Message, frozen=True):
    """What each of the sender's ranks was doing when the coordinator sent Look."""

    attempt: int
    observations: tuple[Observation, ...] = ()


class Ping(_Message, frozen=True):
    """A sign that the coordinator is alive."""


Message = (
    Hello
    | Challenge
    | Welcome
    | Refused
    | Elsewhere
    | Announce
    | History
    | Bring
    | Code
    | Start
    | Installed
    | Begin
    | Stop
    | Finish
    | Examine
    | Look
    | Leave
    | Farewell
    | Failed
    | Idle
    | Finished
    | Leaving
    | Located
    | Beats
    | Examined
    | Looked
    | Ping
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class UnreadableError(TrainerError):
    """A line received on the control port is not a message of this version."""


class OtherVersionError(ConfigError):
    """The other supervisor's version cannot work with this one's."""


def to_line(message: Message) -> bytes:
    """Encodes a message as the line that is sent."""
    try:
        return _encoder.encode(message) + b"\n"
    except UnicodeEncodeError:  # The message quotes a file name that is not valid UTF-8.
        return json.dumps(msgspec.to_builtins(message), ensure_ascii=False).encode(errors="replace") + b"\n"


def from_line(line: bytes) -> Message:
    """Decodes a received line.

    Raises:
        UnreadableError: The line is not a message.
    """
    try:
        return _decoder.decode(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{line[:80]!r} is not a message between supervisors of this version") from error

"""What the command and rank 0's supervisor say to each other: one JSON object per line, in both directions.

To run a program in a held gang:

    command                         supervisor
    RunProgram(words, …)       -->
                               <--  NotRun(why), or SendCode if rank 0's supervisor lacks the code
    TheCode(data), repeatedly  -->
                               <--  Begun(attempt), and then Going at regular intervals
    LetFinish                  -->
    Interrupt, or the end      -->
                               <--  Over(attempt, exit_code, message, incident, result)

To replace the code of a running job:

    ReplaceCode(digest)        -->
                               <--  NotRun(why), or SendCode if rank 0's supervisor lacks the code
    TheCode(data), repeatedly  -->
                               <--  Ready: nothing has changed yet, and the command now writes the code into the job
    Apply(revision)            -->
                               <--  NotRun(why), or Begun(attempt, former), and then Going at regular intervals
                               <--  Tried(failed): the code has finished its first step, or failed before it

Binary data is in base64. The code is sent in pieces; the last one is empty.
"""

import hashlib
from typing import Any

import msgspec

LINE_BYTES = 2 << 20
"""The longest line: a piece of code in base64, or a command line, and room for the rest."""
COMMAND_BYTES = 1 << 16
"""The longest command line as JSON."""

VERSION = 3
"""Raised with every change that an older side could misunderstand."""


class _Said(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """One line. Fields that this version does not have are ignored."""


class RunProgram(_Said, frozen=True):
    """Runs a program."""

    words: tuple[str, ...]
    """The program's command line."""
    digest: str
    """The SHA-256 of the archive with the program's files, in hexadecimal."""
    by: str
    env: dict[str, str] = {}
    """Variables for the program's ranks, in addition to those of the hold."""
    packages: tuple[str, ...] = ()
    """Packages to install before the ranks begin, as pip takes them."""
    requirements: str = ""
    """A requirements file in the archive that lists such packages; empty if there is none."""
    version: int = VERSION


class ReplaceCode(_Said, frozen=True):
    """Prepares other code for a running job."""

    digest: str
    """The SHA-256 of the archive with the files, in hexadecimal."""
    by: str
    version: int = VERSION


class TheCode(_Said, frozen=True):
    """The next bytes of the archive; empty at its end."""

    data: bytes


class LetFinish(_Said, frozen=True):
    """Lets the program's ranks save and end, as when a pod is told to stop. After its grace period they are ended."""


class Apply(_Said, frozen=True):
    """Restarts the ranks with the code that has been prepared."""

    revision: int
    """`spec.code.revision`, which now names this code."""


class Interrupt(_Said, frozen=True):
    """Ends the program's ranks at once."""


class NotRun(_Said, frozen=True):
    """Why the program is not run."""

    why: str
    later: bool = False
    """Whether the same program may be accepted in a moment, because the gang is not complete yet."""


class SendCode(_Said, frozen=True):
    """Asks for the archive."""


class Ready(_Said, frozen=True):
    """The code has arrived."""

    former: str = ""
    """The digest of the code that would run again if this code failed before its first step now."""


class Begun(_Said, frozen=True):
    """The ranks are being started."""

    attempt: int
    former: str = ""
    """The digest of the code that runs again if new code fails before its first step. It differs from that in Ready
    if untried code has finished its first step, or failed before it, since then."""


class Tried(_Said, frozen=True):
    """How new code has gone on to its first step."""

    failed: str = ""
    """Which rank failed first, and why; empty if the code stays. After a failure the former code runs again."""


class Going(_Said, frozen=True):
    """The program still runs. Without this line a proxy might close the connection."""


class Over(_Said, frozen=True):
    """The program has ended, on all nodes."""

    attempt: int
    exit_code: int
    message: str
    incident: dict[str, Any] | None = None
    """Which rank failed first, and why, as on the status page; None if none has failed."""
    result: Any = None
    """What rank 0 has set as its result."""


Question = RunProgram | ReplaceCode | TheCode | Apply | LetFinish | Interrupt
Answer = NotRun | SendCode | Ready | Begun | Tried | Going | Over

questions: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
"""Decodes a line of the command."""


def to_line(said: Question | Answer) -> bytes:
    """Encodes a line."""
    return msgspec.json.encode(said) + b"\n"


def socket_of(uid: str) -> str:
    """The name of the socket for a job, in the private directory of rank 0's supervisor."""
    return f"hold-{hashlib.sha256(uid.encode()).hexdigest()[:12]}"

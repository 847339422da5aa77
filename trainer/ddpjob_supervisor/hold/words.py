"""What the command and rank 0's supervisor say to each other: one JSON object per line, in both directions.

    command                         supervisor
    RunProgram(words, digest)  -->
                               <--  NotRun(why), or SendCode if rank 0's supervisor lacks the code
    TheCode(data)              -->
                               <--  Begun(attempt), and then Going at regular intervals
    LetFinish                  -->
    Interrupt, or the end      -->
                               <--  Over(attempt, exit_code, message, incident, result)

Binary data is in base64.
"""

import hashlib
from typing import Any

import msgspec

LINE_BYTES = 2 << 20
"""The longest line: an archive of 1 MiB in base64, and room for the rest."""
CODE_BYTES, COMMAND_BYTES = 1 << 20, 1 << 16
"""The largest archive and the longest command line as JSON: each fits into one line between supervisors too."""

VERSION = 1
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
    version: int = VERSION


class TheCode(_Said, frozen=True):
    """The archive."""

    data: bytes


class LetFinish(_Said, frozen=True):
    """Lets the program's ranks save and end, as when a pod is told to stop. After its grace period they are ended."""


class Interrupt(_Said, frozen=True):
    """Ends the program's ranks at once."""


class NotRun(_Said, frozen=True):
    """Why the program is not run."""

    why: str
    later: bool = False
    """Whether the same program may be accepted in a moment, because the gang is not complete yet."""


class SendCode(_Said, frozen=True):
    """Asks for the archive."""


class Begun(_Said, frozen=True):
    """The ranks are being started."""

    attempt: int


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


Question = RunProgram | TheCode | LetFinish | Interrupt
Answer = NotRun | SendCode | Begun | Going | Over

questions: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
"""Decodes a line of the command."""


def to_line(said: Question | Answer) -> bytes:
    """Encodes a line."""
    return msgspec.json.encode(said) + b"\n"


def socket_of(uid: str) -> str:
    """The name of the socket for a job, in the private directory of rank 0's supervisor."""
    return f"hold-{hashlib.sha256(uid.encode()).hexdigest()[:12]}"

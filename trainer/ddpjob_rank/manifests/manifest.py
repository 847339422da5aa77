"""What a checkpoint says about itself, and so which of two is the newer one."""

import json
import re
import secrets
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from ddpjob_rank.machine.regular_file import ABSENT, NotRegularError, read_regular

from .unusable import BrokenError, ForeignError, NewerError, UnavailableError

NAME = re.compile(r"step-(\d{8,})(?:-\d+)?")
"""Of the directory of a checkpoint."""
FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_BYTES = 1024 * 1024
"""More than any command line makes it."""
PROGRAM = "ddpjob-train"
"""The mark of this program's manifests."""
HEADS = (f'{{\n "program": "{PROGRAM}"'.encode(), b'{\n "step": ')
"""How they begin, and began before they had a mark."""
NO_ATTEMPT = -1
GREATEST = 2**63 - 1
"""No number is as great."""

Writer = tuple[int, str]
"""The attempt and the run that write a checkpoint. The greater one has taken over from the other."""


def new_run() -> str:
    """A name for a run that begins now: no other run has it, and later runs have greater ones."""
    return f"{datetime.now(UTC).isoformat(timespec='microseconds')}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint is; its fields are the keys of manifest.json."""

    step: int
    epoch: int
    samples: int
    """Samples of the epoch that all processes together have seen."""
    worldSize: int  # noqa: N815  (a JSON key)
    globalBatchSize: int  # noqa: N815
    uid: str
    """Of the job."""
    lineage: tuple[int, ...]
    """The attempts that led here, ascending, the last one the writer's."""
    arguments: tuple[str, ...] = ()
    """The writer's command line: with it the model can be made again."""
    run: str = ""
    """The writer's, as named by `new_run`: two runs are of one attempt if they were given one directory before either
    had saved. Empty: an older version wrote it."""
    ancestors: tuple[str, ...] = ()
    """The uids of the other jobs whose checkpoints led here."""
    seed: int | None = None
    """This and the next two: the data, as in the trainer's DataIdentity. Older versions do not say."""
    dataLength: int | None = None  # noqa: N815
    dataFingerprint: tuple[str, ...] = ()  # noqa: N815
    savedAt: str = ""  # noqa: N815
    size: int = 0
    sha256: str = ""
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.lineage:
            raise ValueError("its lineage is empty")
        counts = (self.step, self.epoch, self.samples, self.size, self.seed or 0, self.dataLength or 0)
        numbers = (*counts, *self.lineage, self.worldSize, self.globalBatchSize)
        if not 0 <= min(numbers) <= max(numbers) < GREATEST:
            raise ValueError("a number in it is negative or out of range")

    @property
    def attempt(self) -> int:
        """The writer's."""
        return self.lineage[-1]

    @property
    def writer(self) -> Writer:
        """Who wrote it."""
        return self.attempt, self.run

    def continues(self, other: "Manifest") -> bool:
        """Whether another one is of this one's job, in whatever attempt, or of one that led to it."""
        return other.uid == self.uid or other.uid in self.ancestors

    @property
    def order(self) -> tuple[Writer, int]:
        """Orders two of them: the later writer is newer, then the later step.

        Not only the later step: a process of an earlier attempt, on an unreachable machine, may still write when a
        later attempt has gone back behind that step.
        """
        return self.writer, self.step


def checkpoints_in(directory: Path) -> list[Path]:
    """All checkpoints of a directory, valid or not.

    Raises:
        OSError: It cannot be listed.
    """
    return [path for path in directory.iterdir() if NAME.fullmatch(path.name)]


def encoded(manifest: Manifest) -> bytes:
    """The content of manifest.json. The mark comes first, so that even the beginning of it says whose it is."""
    return json.dumps({"program": PROGRAM, **asdict(manifest)}, indent=1).encode()


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of a checkpoint. Fields that this version does not know are ignored.

    Raises:
        ForeignError, NewerError, BrokenError, UnavailableError: There is none, or it cannot be used.
    """
    try:
        if not stat.S_ISDIR(checkpoint.lstat().st_mode):
            raise ForeignError("it is not a directory")
        written = read_regular(checkpoint / MANIFEST, MANIFEST_BYTES)
    except NotRegularError:
        raise ForeignError(f"{MANIFEST} is not a regular file") from None
    except OSError as error:
        if error.errno in ABSENT:
            raise ForeignError(f"it has no {MANIFEST}") from error
        raise UnavailableError(f"{checkpoint / MANIFEST} cannot be read: {error.strerror}") from error
    if len(written) > MANIFEST_BYTES:
        raise ForeignError(f"{MANIFEST} has more than {MANIFEST_BYTES} bytes")
    return _manifest_of(written)


def _manifest_of(written: bytes) -> Manifest:
    try:
        fields = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise (BrokenError if _torn(written) else ForeignError)(f"{MANIFEST} is damaged ({error})") from error
    if not _ours(fields):
        raise ForeignError(f"{MANIFEST} was written by another program")
    if fields["format"] != FORMAT:
        raise NewerError(f"its format is {fields['format']}, this version reads {FORMAT}")
    try:
        return msgspec.convert(fields, Manifest)
    except msgspec.ValidationError as error:
        raise BrokenError(f"{MANIFEST} is damaged ({error})") from error


def _torn(written: bytes) -> bool:
    """Whether it begins as this program's do, as far as it goes; or is as empty as after a power failure."""
    begins = any(written.startswith(head) or head.startswith(written) for head in HEADS)
    return begins or not written.strip(b"\0")


def _ours(fields: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is this program's; older versions did not say so."""
    return (
        isinstance(fields, dict) and fields.get("program", PROGRAM) == PROGRAM and type(fields.get("format")) is int
    )


def extended(lineage: Sequence[int], attempt: int, newest: int) -> tuple[int, ...]:
    """The lineage of a run that goes on from a checkpoint, or from none.

    It ascends even if attempts are counted from the beginning again, as in a recreated job.

    Args:
        lineage: The checkpoint's.
        attempt: The run's.
        newest: The latest attempt that has written into the directory, NO_ATTEMPT if none has.
    """
    # What is written has to be readable, whatever somebody has written before.
    return (*lineage, min(max(attempt, newest + 1), GREATEST - 1))

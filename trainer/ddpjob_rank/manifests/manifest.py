"""The manifest of a checkpoint, which describes the checkpoint and shows which of two checkpoints is newer."""

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

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.machine.regular_file import ABSENT, NotRegularError, read_regular

from .unusable import BrokenError, ForeignError, NewerError, UnavailableError

NAME = re.compile(r"step-(\d{8,})(?:-(\d+))?")
"""The name of a checkpoint's directory: its step and, if that name was taken, a number."""
FORMAT, READ = 2, (1, 2)
"""The format that is written, and the formats that are read. They differ in the layout of the state."""
MANIFEST = "manifest.json"
MANIFEST_BYTES = 1024 * 1024
"""The largest manifest that is read. Even a manifest with the longest command line is smaller."""
PROGRAM = "ddpjob"
"""The value of the key `program`, which marks a manifest as written by this program."""
FORMER = "ddpjob-train"
"""The mark in format 1."""
HEADS = (*(f'{{\n "program": "{name}"'.encode() for name in (PROGRAM, FORMER)), b'{\n "step": ')
"""How manifests of this program begin: with the mark or, if an older version wrote them, without it."""
NO_ATTEMPT = -1
GREATEST = 2**63 - 1
"""All numbers in a manifest are smaller than this."""

SHARD = re.compile(r"__\d+_\d+\.distcp")
"""The names of the files that hold the tensors of a sharded state. They are those of torch.distributed.checkpoint."""

Writer = tuple[int, str]
"""The attempt and the run that write a checkpoint. The greater of two writers has taken over from the other."""


def new_run() -> str:
    """A unique name for a run that begins now. Later runs have greater names."""
    return f"{datetime.now(UTC).isoformat(timespec='microseconds')}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Shard:
    """A file beside the state, with the tensors that one rank has written."""

    name: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        if not SHARD.fullmatch(self.name) or not 0 <= self.size < GREATEST:
            raise ValueError("a shard in it has an impossible name or size")


@dataclass(frozen=True, slots=True)
class Manifest:
    """Describes a checkpoint. The fields are the keys of manifest.json."""

    step: int
    epoch: int
    samples: int
    """The number of samples of the epoch that all processes together have seen."""
    worldSize: int  # noqa: N815  (a JSON key)
    globalBatchSize: int  # noqa: N815
    uid: str
    """The job's uid."""
    lineage: tuple[int, ...]
    """The attempts that led to this checkpoint, in ascending order. The last one wrote it."""
    arguments: tuple[str, ...] = ()
    """The command line of the run that wrote the checkpoint, from which the model can be built again."""
    run: str = ""
    """The run that wrote the checkpoint, as named by `new_run`. Two runs may have the same attempt number if they
    were given the same directory before either of them had saved. Empty if an older version wrote the checkpoint."""
    ancestors: tuple[str, ...] = ()
    """The uids of other jobs whose checkpoints led to this one."""
    seed: int | None = None
    """Identifies the data, together with the next two fields, as the trainer's DataIdentity does. Older versions lack
    all three."""
    dataLength: int | None = None  # noqa: N815
    dataFingerprint: tuple[str, ...] = ()  # noqa: N815
    savedAt: str = ""  # noqa: N815
    size: int = 0
    sha256: str = ""
    shards: tuple[Shard, ...] = ()
    """The files with the tensors of a sharded state."""
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
        """The attempt that wrote the checkpoint."""
        return self.lineage[-1]

    @property
    def position(self) -> tuple[int, int, int]:
        """Step, epoch and samples."""
        return self.step, self.epoch, self.samples

    @property
    def writer(self) -> Writer:
        """The attempt and the run that wrote the checkpoint."""
        return self.attempt, self.run

    def continues(self, other: "Manifest") -> bool:
        """Whether `other` is from any attempt of the same job, or from a job whose checkpoints led to this one."""
        return other.uid == self.uid or other.uid in self.ancestors

    @property
    def order(self) -> tuple[Writer, int, str]:
        """A sort key. A later writer's checkpoints are newer; if the writer is the same, the later step is newer.

        A writer saves the same step again if an epoch ends there, because a scheduler may have made a step since. The
        later save is then the newer one.

        The step alone is not enough: a process of an earlier attempt, on an unreachable machine, may still write the
        checkpoint of a step after a later attempt has resumed from a lower step.
        """
        return self.writer, self.step, self.savedAt


def checkpoints_in(directory: Path) -> list[Path]:
    """All checkpoints in a directory, whether they are valid or not.

    Raises:
        OSError: The directory cannot be listed.
    """
    return [path for path in directory.iterdir() if NAME.fullmatch(path.name)]


def encoded(manifest: Manifest) -> bytes:
    """The content of manifest.json.

    The mark comes first, so that even an incomplete file shows which program wrote it.
    """
    return json.dumps({"program": PROGRAM, **asdict(manifest)}, indent=1).encode()


def read_manifest(checkpoint: Path) -> Manifest:
    """Reads the manifest of a checkpoint. Ignores fields that this version does not know.

    Raises:
        ForeignError, NewerError, BrokenError, UnavailableError: There is no manifest, or it cannot be used.
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
    return decoded(written)


def decoded(written: bytes) -> Manifest:
    """The manifest that a manifest.json with this content describes. Ignores fields that this version does not know.

    Raises:
        ForeignError, NewerError, BrokenError: It is not a manifest of this program and version.
    """
    try:
        fields = parsed(written)
    except ValueError as error:
        raise (BrokenError if _torn(written) else ForeignError)(f"{MANIFEST} is damaged ({error})") from error
    if not _ours(fields):
        raise ForeignError(f"{MANIFEST} was written by another program")
    if fields["format"] not in READ:
        raise NewerError(f"its format is {fields['format']}, this version reads {READ[0]} to {READ[-1]}")
    try:
        return msgspec.convert(fields, Manifest)
    except msgspec.ValidationError as error:
        raise BrokenError(f"{MANIFEST} is damaged ({error})") from error


def _torn(written: bytes) -> bool:
    """Whether `written` is a manifest of this program that was cut off, or only zeros, as after a power failure."""
    begins = any(written.startswith(head) or head.startswith(written) for head in HEADS)
    return begins or not written.strip(b"\0")


def _ours(fields: object) -> TypeGuard[dict[str, Any]]:
    """Whether `fields` are a manifest of this program. Manifests of older versions have no mark."""
    return (
        isinstance(fields, dict)
        and fields.get("program", PROGRAM) in {PROGRAM, FORMER}
        and type(fields.get("format")) is int
    )


def extended_lineage(lineage: Sequence[int], attempt: int, newest: int) -> tuple[int, ...]:
    """The lineage of a run that resumes from a checkpoint, or starts without one.

    The lineage ascends even if attempts are counted from the beginning again, as in a recreated job.

    Args:
        lineage: The checkpoint's lineage; empty if there is no checkpoint.
        attempt: The run's attempt.
        newest: The latest attempt that has written to the directory; NO_ATTEMPT if none has.
    """
    # At most GREATEST - 1, even if `newest` has this value already: a greater number could not be read.
    return (*lineage, min(max(attempt, newest + 1), GREATEST - 1))

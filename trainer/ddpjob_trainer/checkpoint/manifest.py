"""What a checkpoint says about itself, and so which of two is the newer one."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

FORMAT = 1
MANIFEST = "manifest.json"
NO_ATTEMPT = -1

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
    savedAt: str = ""  # noqa: N815
    size: int = 0
    sha256: str = ""
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not self.lineage:
            raise ValueError("its lineage is empty")

    @property
    def attempt(self) -> int:
        """The writer's."""
        return self.lineage[-1]

    @property
    def writer(self) -> Writer:
        """Who wrote it."""
        return self.attempt, self.run

    @property
    def order(self) -> tuple[Writer, int]:
        """Orders two of them: the later writer is newer, then the later step.

        Not only the later step: a process of an earlier attempt, on an unreachable machine, may still write when a
        later attempt has gone back behind that step.
        """
        return self.writer, self.step


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of a checkpoint.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged, or of another format.
    """
    try:
        fields = json.loads((checkpoint / MANIFEST).read_bytes())
        if fields["format"] == FORMAT:
            lists = {name: tuple(fields[name]) for name in ("lineage", "arguments") if name in fields}
            return Manifest(**{**fields, **lists})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{MANIFEST} is damaged ({error})") from error
    raise ValueError(f"its format is {fields['format']}, this version reads {FORMAT}")


def extended(lineage: Sequence[int], attempt: int, newest: int) -> tuple[int, ...]:
    """The lineage of a run that goes on from a checkpoint, or from none.

    It ascends even if attempts are counted from the beginning again, as in a recreated job.

    Args:
        lineage: The checkpoint's.
        attempt: The run's.
        newest: The latest attempt that has written into the directory, NO_ATTEMPT if none has.
    """
    return (*lineage, max(attempt, newest + 1))

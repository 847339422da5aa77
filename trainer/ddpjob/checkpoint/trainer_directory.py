"""The checkpoints of Hugging Face's Trainer: finds the newest complete checkpoint.

    checkpoint-120/model.safetensors …       the weights, the optimizer and others, by rank 0
    checkpoint-120/rng_state_1.pth           the random generators of a rank, by that rank
    checkpoint-120/trainer_state.json        where training was; written last by rank 0
    checkpoint-120/ddpjob.json               the job's uid; in a job, written after all that rank 0 writes
    broken-checkpoint-120                    a broken checkpoint that was set aside

The Trainer writes directly into the checkpoint's final directory. So a rank that is killed during a save leaves a
torn checkpoint, which the Trainer would take for the newest.
"""

import json
import os
import re
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from ddpjob_rank.bounded_json import parsed
from ddpjob_rank.console import warn
from ddpjob_rank.errors import StorageUnavailableError
from ddpjob_rank.manifests.unusable import BrokenError

NAME = re.compile(r"checkpoint-(\d+)")
STATE = "trainer_state.json"
MARK = "ddpjob.json"
UNFINISHED = "checkpoint-is-incomplete.txt"
"""A just-in-time checkpoint of the Trainer contains this file while it is being written."""
SET_ASIDE = "broken-"
"""A prefix, because the Trainer counts all directories whose names begin with `checkpoint-` as old checkpoints."""

ZIP = b"PK\x03\x04"
LENGTH_BYTES = 8
"""How many bytes at the start of a safetensors file hold the length of its header."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The newest checkpoint that is whole, and the newer ones that are broken."""

    found: Path | None
    broken: list[Path]

    def set_aside(self) -> None:
        """Renames the broken checkpoints."""
        for path in self.broken:
            _set_aside(path)


def checkpoints_of_trainer(directory: Path) -> list[Path]:
    """The Trainer's checkpoints in a directory, the newest first, whether they are whole or not."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=_step_of, reverse=True)


def newest_of_trainer(directory: Path, uid: str | None = None) -> Choice:
    """Finds the Trainer's newest checkpoint that is whole. Warns of newer ones that are broken. Changes no files.

    Args:
        directory: The Trainer's output directory.
        uid: Only checkpoints of the job with this uid count. None: those of all jobs count.

    Raises:
        StorageUnavailableError: A checkpoint that may be the newest cannot be read now.
    """
    broken = []
    for path in checkpoints_of_trainer(directory):
        try:
            check(path)
        except BrokenError as error:
            warn(f"checkpoint {path} is passed over: {error}")
            broken.append(path)
        else:
            if uid is None or _uid_of(path) == uid:
                return Choice(path, broken)
    return Choice(None, broken)


def mark(checkpoint: Path, uid: str) -> None:
    """Marks a checkpoint as a checkpoint of the job with this uid."""
    (checkpoint / MARK).write_text(json.dumps({"uid": uid}), encoding="utf-8")


def check(checkpoint: Path) -> None:
    """Checks that a checkpoint is whole, as far as its files show.

    Raises:
        BrokenError: It is not.
        StorageUnavailableError: It cannot be read now.
    """
    try:
        if (checkpoint / UNFINISHED).exists():
            raise BrokenError("it is unfinished")
        state = _json(checkpoint / STATE)
        if state.get("global_step") != _step_of(checkpoint):
            raise BrokenError(f"{STATE} is of step {state.get('global_step')}")
        for file in checkpoint.rglob("*"):
            if reads := CHECKS.get(file.suffix):
                reads(file)
    except OSError as error:
        raise StorageUnavailableError(f"checkpoint {checkpoint} cannot be read: {error.strerror or error}") from error


def _uid_of(checkpoint: Path) -> str | None:
    with suppress(OSError, ValueError, AttributeError):
        uid: str = parsed((checkpoint / MARK).read_bytes()).get("uid")
        return uid
    return None


def _json(file: Path) -> dict[str, Any]:
    try:
        content = parsed(file.read_bytes())
    except FileNotFoundError:
        raise BrokenError(f"it has no {file.name}") from None
    except ValueError:
        raise BrokenError(f"{file.name} is torn") from None
    if not isinstance(content, dict):
        raise BrokenError(f"{file.name} is damaged")
    return content


def _check_json(file: Path) -> None:
    shards = _json(file).get("weight_map") if file.name.endswith(".index.json") else None
    if isinstance(shards, dict):
        _require(file.parent, sorted(set(shards.values())))


def _check_safetensors(file: Path) -> None:
    with file.open("rb") as content:
        length = int.from_bytes(content.read(LENGTH_BYTES), "little")
        size = os.fstat(content.fileno()).st_size
        try:
            header = parsed(content.read(length if length < size else 0))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            raise BrokenError(f"{file.name} is torn") from None
    if size != LENGTH_BYTES + length + max(ends, default=0):
        raise BrokenError(f"{file.name} is torn")


def _check_torch(file: Path) -> None:
    """Checks a file of torch.save, which is a zip archive with checksums. The older format has no checksums."""
    with file.open("rb") as content:
        begin = content.read(len(ZIP))
        if begin.strip(b"\0") and not ZIP.startswith(begin):
            return
        try:
            with zipfile.ZipFile(content) as archive:
                torn = archive.testzip()
        except zipfile.BadZipFile:
            torn = "all"
    if torn:
        raise BrokenError(f"{file.name} is torn")


CHECKS = {
    ".json": _check_json,
    ".safetensors": _check_safetensors,
    **dict.fromkeys((".bin", ".pt", ".pth"), _check_torch),
}
"""How a file is checked, by its suffix."""


def _require(directory: Path, names: list[str]) -> None:
    for name in names:
        if not (directory / name).exists():
            raise BrokenError(f"it has no {name}")


def _step_of(checkpoint: Path) -> int:
    named = NAME.fullmatch(checkpoint.name)
    return int(named[1]) if named else -1


def _set_aside(path: Path) -> None:
    name = f"{SET_ASIDE}{path.name}"
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    aside = next(aside for each in names if not (aside := path.with_name(each)).exists())
    try:
        path.rename(aside)
    except OSError as error:
        warn(f"the broken checkpoint {path} could not be set aside: {error.strerror}")
    else:
        warn(f"the broken checkpoint {path} is set aside as {aside.name}")

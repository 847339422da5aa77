"""Recognizes that `torch.save` could not write its file: its error has no errno, and does not name the file."""

import re
import shutil
import traceback
from pathlib import Path
from types import FrameType

from ddpjob_rank.errors import StorageError, StorageFullError, TrainerError

NOT_WRITTEN = re.compile(
    r"inline_container\.cc:\d+\] ?\. ?(?:unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing file)"
)
"""PyTorch's words when a write has failed, or was incomplete. If the file is closed after that, only the former."""

SERIALIZATION = "/torch/serialization.py"

LEAST_BYTES = 1 << 20
"""A disk with less room than this counts as full: the file that could not be completed takes up the rest."""


def not_saved(error: BaseException) -> TrainerError | None:
    """The error in one line, if it says that `torch.save` could not write a file; None for another error."""
    if not isinstance(error, RuntimeError) or NOT_WRITTEN.search(str(error)) is None:
        return None
    file = next((_saved(frame) for frame, _ in traceback.walk_tb(error.__traceback__) if _saves(frame)), None)
    name = f" {file}" if file else ""
    if file and _room(file) < LEAST_BYTES:
        return StorageFullError(f"torch.save could not write{name}: No space left on device")
    return StorageError(f"torch.save could not write{name} to its end: most likely the disk or a quota was full then")


def _saves(frame: FrameType) -> bool:
    return frame.f_code.co_name == "save" and frame.f_code.co_filename.endswith(SERIALIZATION)


def _saved(frame: FrameType) -> Path | None:
    """The file of a call of `torch.save`; None if it writes into a file object."""
    file = frame.f_locals.get("f")
    return Path(file) if isinstance(file, str | Path) else None


def _room(file: Path) -> int:
    try:
        return shutil.disk_usage(file.absolute().parent).free
    except OSError:
        return LEAST_BYTES

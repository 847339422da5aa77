"""Recognizes errors which mean that a disk or a quota is full, from Python and from libraries that save models."""

import errno
import os
import re
import tempfile
import traceback
from pathlib import Path

from ddpjob_rank.errors import StorageError, StorageFullError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

NAMED = re.compile(r"\(os error (?P<rust>\d{1,3})\)|\berrno = (?P<hdf5>\d{1,3}), error message = ")
"""The errno in messages of code in other languages: Rust's io::Error (safetensors, tokenizers), and HDF5."""

NOT_WRITTEN = re.compile(r"iostream error|unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing file")
"""The messages of PyTorch's C++ writer after a write has failed. They do not contain the errno."""

PROBE_BYTES = 1 << 20


def full_storage(error: BaseException) -> StorageError | StorageFullError | None:
    """The error to report if `error` means that storage is full, or was full for a moment; None if it does not."""
    if isinstance(error, OSError) and error.errno in FULL:
        return _full(error.errno, error.filename)
    text = str(error)
    if (named := NAMED.search(text)) and (number := int(named["rust"] or named["hdf5"])) in FULL:
        return _full(number, None)
    if isinstance(error, RuntimeError) and NOT_WRITTEN.search(text) and (path := _saved_to(error)):
        return _probe(path)
    return None


def _full(number: int, path: object) -> StorageFullError:
    return StorageFullError(f"{os.strerror(number)}{f': {path}' if path else ''}")


def _probe(path: Path) -> StorageError | StorageFullError:
    """Finds out why a file could not be written, by writing another file beside it: quotas cannot be queried."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())  # Some file systems, such as NFS, refuse the data only here.
    except OSError as refused:
        if refused.errno in FULL:
            return _full(refused.errno, path)
    return StorageError(
        f"torch.save could not write {path} completely: most likely the disk or a quota was full then"
    )


def _saved_to(error: BaseException) -> Path | None:
    """The path to which `torch.save` was writing when it failed; None if the error comes from elsewhere."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code, file = frame.f_code, frame.f_locals.get("f")
        if code.co_name == "save" and code.co_filename.endswith("/torch/serialization.py"):
            return Path(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else None
    return None

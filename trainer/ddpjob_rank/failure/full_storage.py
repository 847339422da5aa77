"""Errors that mean that a disk or a quota is full, in the words of Python and of the libraries that save models."""

import errno
import os
import re
import tempfile
import traceback
from pathlib import Path

from ddpjob_rank.errors import StorageFullError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

NAMED = re.compile(r"\(os error (?P<rust>\d{1,3})\)|\berrno = (?P<hdf5>\d{1,3}), error message = ")
"""The errno in messages of other languages: of Rust's io::Error (safetensors, tokenizers), and of HDF5."""

PROBE_BYTES = 1 << 20


def full_storage(error: BaseException) -> StorageFullError | None:
    """The error that says that storage is full; None if `error` does not mean that.

    `torch.save` to a path keeps no errno: its writer in C++ fails with "basic_ios::clear: iostream error" or with
    "unexpected pos 576 vs 534". Therefore a small file is written to the same directory, and removed, to find out.
    """
    if isinstance(error, OSError) and error.errno in FULL:
        return _full(error.errno, error.filename)
    if (named := NAMED.search(str(error))) and (number := int(named["rust"] or named["hdf5"])) in FULL:
        return _full(number, None)
    if isinstance(error, RuntimeError) and (path := _saved_to(error)):
        try:
            with tempfile.TemporaryFile(dir=path.parent, buffering=0) as probe:
                probe.write(bytes(PROBE_BYTES))
                os.fsync(probe.fileno())
        except OSError as refused:
            if refused.errno in FULL:
                return _full(refused.errno, path)
    return None


def _full(number: int, path: object) -> StorageFullError:
    return StorageFullError(f"{os.strerror(number)}{f': {path}' if path else ''}")


def _saved_to(error: BaseException) -> Path | None:
    """The path to which `torch.save` was writing as it failed; None if the error comes from somewhere else."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code, file = frame.f_code, frame.f_locals.get("f")
        if code.co_name == "save" and code.co_filename.endswith("/torch/serialization.py"):
            return Path(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else None
    return None

"""Unpacks a program in its pod: the text of this file runs there, on the Python of any image from 3.8 on.

Its arguments are the archive and the directory.
"""

import os
import sys
import zipfile

MOST_BYTES = 256 << 20
"""The largest that `ddpjob submit` sends; a larger one was not made by it."""


def unpack(archive: str, directory: str) -> None:
    """Writes the archive's files below a directory."""
    with zipfile.ZipFile(archive) as packed:
        entries = packed.infolist()
        size = sum(entry.file_size for entry in entries)  # `extract` never writes more than an entry's file_size.
        if size > MOST_BYTES:
            sys.exit(f"the code unpacks to {size} bytes; at most {MOST_BYTES} are allowed")
        for entry in entries:
            path = packed.extract(
                entry, directory
            )  # `extract` drops the parts of a path that lead outside, and makes no links.
            if not entry.is_dir():
                os.chmod(path, 0o755 if entry.external_attr >> 16 & 0o100 else 0o644)  # noqa: PTH101  Of any Python 3.


if __name__ == "__main__":
    unpack(*sys.argv[1:])

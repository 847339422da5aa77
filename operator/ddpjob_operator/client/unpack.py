"""Unpacks a program in its pod.

The pod gets this file as text (`python -c`), so it must run on every Python from 3.8 on. Its arguments are the
archive and the directory.
"""

import os
import sys
import zipfile

MOST_BYTES = 256 << 20
"""The maximum size of the unpacked files. `ddpjob submit` sends less, so a larger archive comes from elsewhere."""


def unpack(archive: str, directory: str) -> None:
    """Writes the archive's files below a directory."""
    with zipfile.ZipFile(archive) as packed:
        entries = packed.infolist()
        size = sum(entry.file_size for entry in entries)  # `extract` writes at most file_size bytes.
        if size > MOST_BYTES:
            sys.exit(f"the code unpacks to {size} bytes; at most {MOST_BYTES} are allowed")
        for entry in entries:
            path = packed.extract(
                entry, directory
            )  # `extract` drops parts of a path that lead outside, and creates no links.
            if not entry.is_dir():
                os.chmod(path, 0o755 if entry.external_attr >> 16 & 0o100 else 0o644)  # noqa: PTH101  (this runs on any Python 3)


if __name__ == "__main__":
    unpack(*sys.argv[1:])

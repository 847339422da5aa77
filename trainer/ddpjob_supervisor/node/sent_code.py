"""The files of the program that was last sent to a held gang, unpacked on this node."""

import hashlib
import io
import shutil
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Self

from .ranks import StartError

MOST_BYTES = 256 << 20
"""The largest total size of the unpacked files. `ddpjob run --on` sends less."""
MOST_FILES = 10_000
EXECUTABLE = 0o100
"""The permission, in the archive, that makes a file executable."""


class SentCode:
    """Keeps the newest code. Each code gets a directory of its own, so no file of another one can be imported.

    The directory stays until other code is run. It is on disk, in TMPDIR, because programs may write into it.
    """

    def __init__(self) -> None:
        self._data = b""
        self._root: Path | None = None
        self._unpacking = threading.Lock()
        """Held while code is unpacked, because an attempt that is over may still unpack when the next one begins."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    def receive(self, data: bytes) -> None:
        """Keeps an archive in place of the former one."""
        self._data = data

    def unpacked(self, digest: str) -> Path:
        """The directory with the files of this code, which are unpacked now if they have not been before.

        Raises:
            StartError: The code was not received, is not what the digest says, or cannot be unpacked.
        """
        try:
            with self._unpacking:
                self._root = self._root or Path(tempfile.mkdtemp(prefix="ddpjob-code-"))
                directory = self._root / digest[:12]
                if not directory.is_dir():
                    self._unpack(digest, self._data, directory)
        except Exception as error:  # A damaged archive makes zipfile raise errors of many types.
            reason = str(error) or type(error).__name__
            raise StartError(f"cannot unpack the code that was sent: {reason}") from error
        return directory

    def _unpack(self, digest: str, data: bytes, directory: Path) -> None:
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("it has not arrived")
        for former in directory.parent.iterdir():
            shutil.rmtree(former, ignore_errors=True)
        new = Path(tempfile.mkdtemp(dir=directory.parent))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)  # `extract` writes at most file_size bytes.
            if size > MOST_BYTES or len(entries) > MOST_FILES:
                raise ValueError(f"it has {len(entries)} files of {size} bytes, which is too much")
            for entry in entries:
                path = Path(archive.extract(entry, new))  # It drops parts of a path that lead outside.
                if not entry.is_dir():
                    path.chmod(0o755 if entry.external_attr >> 16 & EXECUTABLE else 0o644)
        new.rename(directory)

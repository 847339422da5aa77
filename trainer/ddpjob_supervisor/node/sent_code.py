"""The code that was sent to this node after its pod was made: the newest archive, and its files, unpacked.

Archives are on disk, in TMPDIR, and are passed on in pieces, so that their size costs no memory.
"""

import hashlib
import re
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from .ranks import StartError

MOST_PACKED = 64 << 20
"""The largest archive, in bytes."""
MOST_BYTES = 256 << 20
"""The largest total size of the unpacked files."""
MOST_FILES = 10_000
PIECE_BYTES = 1 << 19
"""How many bytes of an archive are passed on at a time. In base64 they fit into one line."""
EXECUTABLE = 0o100
"""The permission, in the archive, that makes a file executable."""
DIGEST = re.compile(r"[0-9a-f]{64}")
BYTECODE = "__pycache__"


class Receiving:
    """An archive that arrives piece by piece."""

    def __init__(self, directory: Path, digest: str, needed: Collection[str]) -> None:
        """`digest` is the SHA-256 that it must have. `needed` has the digests of other archives, which stay."""
        self._file, self._digest = directory / "arriving", digest
        self._kept = {directory / f"{name}.zip" for name in (digest, *needed)}
        self._hash = hashlib.sha256()
        self.size = 0
        """How many bytes have arrived."""
        self._file.write_bytes(b"")

    def add(self, piece: bytes) -> None:
        """Adds the next piece.

        Raises:
            ValueError: The archive is too large.
            OSError: It cannot be written.
        """
        self.size += len(piece)
        if self.size > MOST_PACKED:
            raise ValueError(f"the code has more than {MOST_PACKED} bytes")
        self._hash.update(piece)
        with self._file.open("ab") as file:
            file.write(piece)

    def finish(self) -> None:
        """Takes the archive in, after its last piece.

        Raises:
            ValueError: It is not what the digest says.
            OSError: It cannot be written.
        """
        if self._hash.hexdigest() != self._digest:
            raise ValueError("the code that arrived is not the code that was announced")
        self._file.rename(self._file.with_name(f"{self._digest}.zip"))
        for former in {*self._file.parent.glob("*.zip")} - self._kept:
            former.unlink()


class SentCode:
    """Keeps the newest archive, and unpacks it for the ranks."""

    def __init__(self, mounted: Path | None = None) -> None:
        """`mounted` is the archive with which this pod was made, whose files are in the working directory."""
        self._root: Path | None = None
        self._unpacking = threading.Lock()
        """Held while code is unpacked, because an attempt that is over may still unpack when the next one begins."""
        self._mounted = mounted
        self.mounted_digest = "" if mounted is None else hashlib.sha256(mounted.read_bytes()).hexdigest()
        """The SHA-256 of the archive with which this pod was made; empty if there is none."""
        self.placed = self.mounted_digest
        """The SHA-256 of the archive whose files are in the working directory."""
        self._names = [] if mounted is None else _names_in(mounted)
        """The names of these files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    def receive(self, digest: str, wanted: Iterable[str] = ()) -> Receiving:
        """Begins to receive an archive, which then takes the place of all but the one in the working directory.

        `wanted` has the digests of others that stay, because other nodes may still ask for them.

        Raises:
            ValueError: The digest is none.
            OSError: It cannot be written.
        """
        if not DIGEST.fullmatch(digest):
            raise ValueError("the code's digest is not a SHA-256")
        return Receiving(self._directory, digest, (self.placed, *wanted))

    def has(self, digest: str) -> bool:
        """Whether this archive is here."""
        return self._archive(digest) is not None

    def piece(self, digest: str, offset: int) -> bytes | None:
        """The next bytes of an archive, at most PIECE_BYTES; empty at its end; None if it is not here."""
        if (archive := self._archive(digest)) is None:
            return None
        with archive.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)

    def unpacked(self, digest: str) -> Path:
        """A directory with the files of this code and no others, which are unpacked now if they have not been before.

        The directory stays until other code is unpacked.

        Raises:
            StartError: The code is not here, or cannot be unpacked.
        """
        with self._explained(digest) as archive:
            directory = self._directory / digest[:12]
            if not directory.is_dir():
                for former in self._directory.iterdir():
                    if former.is_dir():
                        shutil.rmtree(former, ignore_errors=True)
                _unpack(archive, self._directory).rename(directory)
        return directory

    def place(self, digest: str, directory: Path) -> None:
        """Puts the files of this code into a directory in place of those of the code that is there.

        Files that programs have written there stay.

        Raises:
            StartError: The code is not here, or cannot be unpacked.
        """
        with self._explained(digest) as archive:
            if digest == self.placed:
                return
            new = _unpack(archive, directory)
            self.placed = ""
            for name in self._names:
                _remove(directory, name)
            self._names = _names_in(archive)
            for name in self._names:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (new / name).replace(directory / name)
            shutil.rmtree(new)
            self.placed = digest

    @contextmanager
    def _explained(self, digest: str) -> Iterator[Path]:
        """Yields an archive, to be unpacked, and explains what goes wrong.

        Raises:
            StartError: The archive is not here, or cannot be unpacked.
        """
        try:
            with self._unpacking:
                archive = self._archive(digest)
                if archive is None:
                    raise StartError("cannot unpack the code that was sent: it has not arrived")  # noqa: TRY301
                yield archive
        except StartError:
            raise
        except Exception as error:  # A damaged archive makes zipfile raise errors of many types.
            reason = str(error) or type(error).__name__
            raise StartError(f"cannot unpack the code that was sent: {reason}") from error

    def _archive(self, digest: str) -> Path | None:
        if self._mounted is not None and digest == self.mounted_digest:
            return self._mounted
        archive = self._directory / f"{digest}.zip"
        return archive if DIGEST.fullmatch(digest) and archive.is_file() else None

    @property
    def _directory(self) -> Path:
        self._root = self._root or Path(tempfile.mkdtemp(prefix="ddpjob-code-"))
        return self._root


def _names_in(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as opened:
        return [name for name in opened.namelist() if not name.endswith("/")]


def _remove(directory: Path, name: str) -> None:
    """Removes a file of former code, its bytecode, and the folders that are empty then."""
    file = directory / name
    file.unlink(missing_ok=True)
    shutil.rmtree(file.parent / BYTECODE, ignore_errors=True)
    for folder in file.parents:
        if folder == directory:
            return
        with suppress(OSError):  # It is not empty.
            folder.rmdir()


def _unpack(archive: Path, parent: Path) -> Path:
    """Unpacks an archive into a new directory below `parent`."""
    new = Path(tempfile.mkdtemp(prefix=".ddpjob-code-", dir=parent))
    try:
        _extract(archive, new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return new


def _extract(archive: Path, directory: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
        size = sum(entry.file_size for entry in entries)  # `extract` writes at most file_size bytes.
        if size > MOST_BYTES or len(entries) > MOST_FILES:
            raise ValueError(
                f"it has {len(entries)} files of {size} bytes; {MOST_FILES} of {MOST_BYTES} bytes are allowed"
            )
        for entry in entries:
            path = Path(opened.extract(entry, directory))  # It drops parts of a path that lead outside.
            if not entry.is_dir():
                path.chmod(0o755 if entry.external_attr >> 16 & EXECUTABLE else 0o644)

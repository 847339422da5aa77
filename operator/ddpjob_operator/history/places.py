"""The folders and files of histories, in a directory or in an object store. They are read, and can be removed."""

import errno
import os
import re
import stat
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.spec import STORE_URL, is_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from obstore.store import ObjectStore as Store

MOST_NAMES = 100_000
"""How many names of one folder are read."""
PAGE = 1000
DEPTH = 2
"""How many levels of folders a job's folder has: nodes and processes."""
NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""Errors of open(2) for a link, a socket, and a directory."""
STATUS = re.compile(r"status code: (\d{3})")
MEANINGS = {
    "401": "the credentials are not valid",
    "403": "the credentials do not permit it",
    "404": "the bucket does not exist",
}


class PlaceError(BadInputError):
    """A place cannot be read."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file in a history."""

    path: str
    size: int
    time: float
    """When it was last written, in seconds since the epoch."""


class HistoryPlace(ABC):
    """A place with histories. Paths in it have slashes and are relative to it; the empty path is the place itself."""

    at_once = 1
    """How many threads may read at the same time."""

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, sorted; none if it does not exist.

        Raises:
            PlaceError: They cannot be read.
        """
        return self._names(path, folders=True)

    def files(self, path: str) -> list[str]:
        """The names of the files in a folder, sorted; none if it does not exist.

        Raises:
            PlaceError: They cannot be read.
        """
        return self._names(path, folders=False)

    @abstractmethod
    def first_files(self, path: str) -> "Iterator[str]":
        """The names of the files in a folder, sorted, but at most MOST_NAMES. They are read by pages, when needed.

        Raises:
            PlaceError: They cannot be read.
        """

    @abstractmethod
    def _names(self, path: str, *, folders: bool) -> list[str]: ...

    @abstractmethod
    def read(self, path: str, limit: int) -> bytes | None:
        """At most `limit` bytes from the start of a file; None if it does not exist.

        Raises:
            PlaceError: It cannot be read.
        """


class WritablePlace(HistoryPlace):
    """A place from which histories can be removed."""

    @abstractmethod
    def tree(self, path: str) -> "Iterator[KeptFile]":
        """The files in a folder and the folders in it, down to DEPTH levels, read when they are needed.

        Raises:
            PlaceError: They cannot be read.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Removes a file, if it exists.

        Raises:
            PlaceError: It cannot be removed.
        """

    @abstractmethod
    def remove_folders(self, path: str) -> None:
        """Removes a folder and the folders in it, down to DEPTH levels, as far as they have no files."""


class DirectoryPlace(WritablePlace):
    """A directory. Only folders and regular files in it are read, because a link could lead out of it."""

    def __init__(self, root: Path) -> None:
        """Checks that the directory exists.

        Raises:
            PlaceError: It does not.
        """
        if not root.is_dir():
            raise PlaceError(f"--history {root}: there is no such directory")
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def read(self, path: str, limit: int) -> bytes | None:
        """As `HistoryPlace.read`."""
        try:
            # O_NONBLOCK, because a pipe would keep its reader waiting.
            descriptor = os.open(self._real(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in NOT_A_FILE:
                return None
            raise PlaceError(f"cannot read {self._root / path}: {error.strerror}") from None

    def _real(self, path: str) -> Path:
        """The path on this machine, in folders that are no links.

        Raises:
            FileNotFoundError: One of the folders is not there, is no folder, or leads out of this one.
        """
        here = self._root
        *above, name = path.split("/")
        for part in above:
            here /= part
            if part in {"", ".", ".."} or not stat.S_ISDIR(here.lstat().st_mode):
                raise FileNotFoundError
        return here / name

    def first_files(self, path: str) -> "Iterator[str]":
        """As `HistoryPlace.first_files`."""
        return iter(self.files(path))

    def tree(self, path: str, depth: int = 0) -> "Iterator[KeptFile]":
        """As `WritablePlace.tree`."""
        for name in self.files(path):
            with suppress(FileNotFoundError):
                status = (self._root / path / name).lstat()
                yield KeptFile(f"{path}/{name}", status.st_size, status.st_mtime)
        for name in self.folders(path) if depth < DEPTH else ():
            yield from self.tree(f"{path}/{name}", depth + 1)

    def remove(self, path: str) -> None:
        """As `WritablePlace.remove`."""
        try:
            self._real(path).unlink(missing_ok=True)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise PlaceError(f"cannot remove {self._root / path}: {error.strerror}") from None

    def remove_folders(self, path: str, depth: int = 0) -> None:
        """As `WritablePlace.remove_folders`."""
        for name in self.folders(path) if depth < DEPTH else ():
            self.remove_folders(f"{path}/{name}", depth + 1)
        with suppress(OSError):
            self._real(path).rmdir()

    def _names(self, path: str, *, folders: bool) -> list[str]:
        try:
            with os.scandir(self._real(f"{path}/." if path else "")) as entries:
                found = (
                    entry.name
                    for entry in islice(entries, MOST_NAMES)
                    if (entry.is_dir if folders else entry.is_file)(follow_symlinks=False)
                )
                return sorted(found)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise PlaceError(f"cannot read {self._root / path}: {error.strerror}") from None


class StorePlace(WritablePlace):
    """A place in an object store, read with the user's own credentials, which come from the environment."""

    at_once = 16  # A store takes its time to answer, however little it has to say.

    def __init__(self, url: str, store: "Store") -> None:
        self._url, self._store = url.rstrip("/"), store

    def __str__(self) -> str:
        return self._url

    def read(self, path: str, limit: int) -> bytes | None:
        """As `HistoryPlace.read`."""
        import obstore  # noqa: PLC0415  (needs an extra)

        try:
            size = obstore.head(self._store, path)["size"]
            return bytes(obstore.get_range(self._store, path, start=0, end=min(size, limit))) if size else b""
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001  (obstore's errors have no common base that is public)
            raise self._error(error) from None

    def first_files(self, path: str) -> "Iterator[str]":
        """As `HistoryPlace.first_files`. A page of the store has up to PAGE names."""
        import obstore  # noqa: PLC0415

        # A listing has no delimiter, so a name may lead into another folder.
        try:
            for page in islice(obstore.list(self._store, path, chunk_size=PAGE), MOST_NAMES // PAGE):
                yield from (item["path"].removeprefix(f"{path}/") for item in page)
        except Exception as error:  # noqa: BLE001
            raise self._error(error) from None

    def tree(self, path: str) -> "Iterator[KeptFile]":
        """As `WritablePlace.tree`."""
        import obstore  # noqa: PLC0415

        try:
            for page in obstore.list(self._store, path, chunk_size=PAGE):
                for item in page:
                    yield KeptFile(item["path"], item["size"], item["last_modified"].timestamp())
        except Exception as error:  # noqa: BLE001
            raise self._error(error) from None

    def remove(self, path: str) -> None:
        """As `WritablePlace.remove`."""
        import obstore  # noqa: PLC0415

        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            pass
        except Exception as error:  # noqa: BLE001
            raise self._error(error, "remove from") from None

    def remove_folders(self, path: str) -> None:
        """As `WritablePlace.remove_folders`. An object store has none."""

    def _names(self, path: str, *, folders: bool) -> list[str]:
        import obstore  # noqa: PLC0415

        try:
            found = obstore.list_with_delimiter(self._store, path or None)
        except Exception as error:  # noqa: BLE001
            raise self._error(error) from None
        paths: Iterable[str] = found["common_prefixes"] if folders else (item["path"] for item in found["objects"])
        return sorted(path.rpartition("/")[2] for path in islice(paths, MOST_NAMES))

    def _error(self, error: Exception, verb: str = "read") -> PlaceError:
        """The error without the text of obstore's, which may contain settings."""
        status = STATUS.search(str(error)[:8192])
        reason = MEANINGS.get(status[1], f"the server answers {status[1]}") if status else type(error).__name__
        return PlaceError(f"cannot {verb} {self._url}: {reason}")


def open_place(address: str) -> WritablePlace:
    """Opens the directory or the object store that an address names.

    Raises:
        PlaceError: It cannot be opened.
    """
    if not is_url(address):
        return DirectoryPlace(Path(address))
    if not re.fullmatch(STORE_URL, address):  # It is not repeated: it may contain a password.
        raise PlaceError(
            "--history must be a directory, or a URL such as s3://BUCKET/PATH, gs://BUCKET/PATH or"
            " az://CONTAINER/PATH, without user, password or query: credentials come from the environment"
        )
    try:
        from obstore.store import from_url  # noqa: PLC0415  (needs an extra)
    except ModuleNotFoundError:
        raise PlaceError(f"{address}: an object store needs another package: pip install 'ddpjob[store]'") from None
    try:
        return StorePlace(address, from_url(address, client_options={"allow_http": True}))
    except Exception as error:  # noqa: BLE001
        raise PlaceError(f"cannot read {address}: {(str(error).splitlines() or [''])[0]}") from None

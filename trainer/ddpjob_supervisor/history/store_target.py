"""Writes a history to an object store. There is no append: a segment that grows is written again, as a whole."""

import contextlib
from functools import partial

import obstore
from ddpjob.checkpoint.store_client import asking, opened

from .segments import HEAD_BYTES, JOBS, HistoryWriter, Segment


class StoreTarget:
    """A folder of an object store."""

    def __init__(self, url: str, writer: HistoryWriter) -> None:
        """Sends no request yet.

        Raises:
            ConfigError: The store cannot be used.
        """
        self._url, self._writer, self._node = url.rstrip("/"), writer, writer.node_folder
        self._store = opened(url)

    def save(self, folder: str, segment: Segment) -> None:
        """As `Target.save`."""
        content = bytes(segment.content)
        with self._asking("written"):
            obstore.put(self._store, f"{self._node}/{folder}/{segment.name}", content)
        segment.saved = len(content)

    def remove(self, folder: str, name: str) -> None:
        """As `Target.remove`."""
        self._delete(f"{self._node}/{folder}/{name}")

    def folders(self) -> list[str]:
        """As `Target.folders`."""
        with self._asking("listed"):
            found = obstore.list_with_delimiter(self._store, self._node)
        return sorted(prefix.rpartition("/")[2] for prefix in found["common_prefixes"])

    def remove_folder(self, folder: str) -> None:
        """As `Target.remove_folder`."""
        with self._asking("listed"):
            found = obstore.list_with_delimiter(self._store, f"{self._node}/{folder}")
        for path in [item["path"] for item in found["objects"]]:
            if self._writer.has_written(folder, path.rpartition("/")[2], partial(self._start, path)):
                self._delete(path)

    def mark(self, name: str, content: bytes) -> None:
        """As `Target.mark`."""
        with self._asking("written"):
            obstore.put(self._store, f"{self._writer.namespace}/{JOBS}/{name}", content)

    def unmark(self, name: str) -> None:
        """As `Target.unmark`."""
        self._delete(f"{self._writer.namespace}/{JOBS}/{name}")

    def _start(self, path: str) -> bytes:
        with self._asking("read"):
            return bytes(obstore.get_range(self._store, path, start=0, end=HEAD_BYTES))

    def _delete(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._asking("deleted", FileNotFoundError):
            obstore.delete(self._store, key)

    def _asking(self, verb: str, *expected: type[Exception]) -> contextlib.AbstractContextManager[None]:
        return asking(f"{self._url} cannot be {verb}", *expected)

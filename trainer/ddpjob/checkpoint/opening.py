"""Opens the storage that a path or a URL names, to save there or only to read."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.storage import checked_address
from ddpjob_rank.manifests.manifest import MANIFEST, NAME, checkpoints_in

from .checkpoint_directory import CheckpointDirectory
from .checkpoint_storage import CheckpointStorage
from .encoding import StateDict, decode
from .reading import FILES, Found, Search, find_newest

if TYPE_CHECKING:
    from .object_store import ObjectStore


def open_storage(address: Path | str, keep: int) -> CheckpointStorage[Any]:
    """Opens a directory or, if `address` is a URL, an object store. `keep` is how many checkpoints stay.

    Raises:
        ConfigError, StorageFullError, StorageError: It cannot be used.
    """
    place = checked_address(address)
    return CheckpointDirectory(place, keep) if isinstance(place, Path) else _store(place, keep)


def read_newest(address: str | os.PathLike[str]) -> Found[StateDict]:
    """Reads the newest checkpoint at a path or a URL, or the one that `address` itself names. Changes nothing.

    Raises:
        ConfigError: There is no valid checkpoint, or the address cannot be used.
        CheckpointUnusableError: The newest checkpoint needs another version of this program.
        StorageUnavailableError: A checkpoint cannot be read now.
    """
    place = checked_address(address)
    try:
        search = (_search_directory(place) if isinstance(place, Path) else search_store(place)).warn_passed_over()
    except OSError as error:
        raise ConfigError(f"{place} has no checkpoints: {error.strerror}") from error
    search.refuse_newer("Use the version that wrote it, or name another checkpoint by its own path")
    if search.found is None:
        raise ConfigError(f"{place} has no valid checkpoint: name the place where a training run saves")
    return search.found


def search_store(url: str) -> Search[Any, StateDict]:
    """Finds the newest checkpoint in an object store, or the one that `url` names. Changes nothing.

    Raises:
        ConfigError, StorageUnavailableError: The store cannot be read.
    """
    parent, _, name = url.rstrip("/").rpartition("/")
    if not NAME.fullmatch(name):
        store = _store(url, read_only=True)
        return find_newest(store.listed, decode, reader=store)
    return find_newest(lambda: [f"{parent}/{name}"], decode, reader=_store(parent, read_only=True))


def _search_directory(path: Path) -> Search[Any, StateDict]:
    single = os.path.lexists(path / MANIFEST)
    return find_newest(lambda: [path.resolve()] if single else checkpoints_in(path), decode, reader=FILES)


def _store(url: str, keep: int = 1, *, read_only: bool = False) -> "ObjectStore":
    try:
        from .object_store import ObjectStore  # noqa: PLC0415  (needs an extra)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{url}: checkpoints in an object store need another package: pip install 'ddpjob[store]'"
        ) from error
    return ObjectStore(url, keep, read_only=read_only)

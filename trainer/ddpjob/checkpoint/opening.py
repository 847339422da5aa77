"""Opens the storage that a path or a URL names."""

from pathlib import Path
from typing import Any

from ddpjob_rank.errors import ConfigError
from ddpjob_rank.machine.storage import is_url, shown

from .checkpoint_directory import CheckpointDirectory
from .checkpoint_storage import CheckpointStorage


def open_storage(address: Path | str, keep: int) -> CheckpointStorage[Any]:
    """Opens a directory or, if `address` is a URL, an object store. `keep` is how many checkpoints stay.

    Raises:
        ConfigError, StorageFullError, StorageError: It cannot be used.
    """
    if not is_url(str(address)):
        return CheckpointDirectory(Path(address), keep)
    try:
        from .object_store import ObjectStore  # noqa: PLC0415  (needs an extra)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{shown(str(address))}: checkpoints in an object store need another package: pip install 'ddpjob[store]'"
        ) from error
    return ObjectStore(str(address), keep)

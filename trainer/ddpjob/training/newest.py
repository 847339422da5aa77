"""Finds the newest checkpoint of a directory, for programs that load it themselves."""

import os
from pathlib import Path

from ddpjob_rank.manifests.manifest import checkpoints_in

from ddpjob.checkpoint.encoding import decode
from ddpjob.checkpoint.reading import FILES, find_newest


def newest(directory: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint in a directory that can be used; None if there is none. Changes no files.

    Raises:
        StorageUnavailableError: A checkpoint that may be the newest cannot be read now.
        CheckpointUnusableError: The newest checkpoint needs another version of this program.
        OSError: The directory cannot be read.
    """
    path = Path(directory)
    search = find_newest(lambda: checkpoints_in(path), decode, reader=FILES).warn_passed_over()
    search.refuse_newer("Use the version that wrote it")
    return Path(search.found.location) if search.found else None

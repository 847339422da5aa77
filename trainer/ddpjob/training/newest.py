"""Finds the newest checkpoint in a directory or an object store, for programs that load it themselves."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from ddpjob_rank.machine.storage import checked_address
from ddpjob_rank.manifests.manifest import MANIFEST, checkpoints_in, encoded

from ddpjob.checkpoint.encoding import StateDict, decode
from ddpjob.checkpoint.opening import search_store
from ddpjob.checkpoint.reading import FILES, STATE, Found, find_newest
from ddpjob.checkpoint.trainer_directory import checkpoints_of_trainer, newest_of_trainer


def newest(directory: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint in `directory` that can be used; None if there is none. Changes no files.

        checkpoint = ddpjob.newest("checkpoints")
        print(f"the newest checkpoint is {checkpoint}" if checkpoint else "nothing is saved yet")

    The checkpoints are those of `Training`, `Checkpoints` and `ddpjob-train`, or those of Hugging Face's Trainer:
    `trainer.train(resume_from_checkpoint=ddpjob.newest(output_dir))`.

    Instead of a directory, `directory` may be the URL of an object store, such as s3://BUCKET/PATH. The checkpoint is
    then a copy in the directory for temporary files. The copy is removed when this process ends.

    Raises:
        StorageUnavailableError: A checkpoint that may be the newest cannot be read now.
        CheckpointUnusableError: The newest checkpoint needs another version of this program.
        ConfigError: The URL is wrong, or the store refuses to be read.
        OSError: The directory cannot be read, or there is no room for the copy.
    """
    place = checked_address(directory)
    # This is normal at the first start of a program that creates the directory.
    if isinstance(place, Path) and not place.exists():
        return None
    if isinstance(place, Path) and checkpoints_of_trainer(place):
        return newest_of_trainer(place).found
    if isinstance(place, Path):
        search = find_newest(lambda: checkpoints_in(place), decode, reader=FILES)
    else:
        search = search_store(place)
    search.warn_passed_over().refuse_newer("Use the version that wrote it")
    if search.found is None:
        return None
    return Path(search.found.location) if isinstance(place, Path) else _copied(search.found)


def _copied(found: Found[StateDict]) -> Path:
    """A copy of a checkpoint in an object store, with the same name."""
    directory = tempfile.mkdtemp(prefix="ddpjob-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    copy = Path(directory, found.location.rpartition("/")[2])
    copy.mkdir()
    shutil.copyfile(found.content.path, copy / STATE)
    (copy / MANIFEST).write_bytes(encoded(found.manifest))
    return copy

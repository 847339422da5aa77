"""Finds the newest checkpoint of a directory, for programs that load it themselves."""

import os
from pathlib import Path

from ddpjob_rank.manifests.manifest import checkpoints_in

from ddpjob.checkpoint.encoding import decode
from ddpjob.checkpoint.reading import FILES, find_newest
from ddpjob.checkpoint.trainer_directory import checkpoints_of_trainer, newest_of_trainer


def newest(directory: str | os.PathLike[str]) -> Path | None:
    """The newest checkpoint in `directory` that can be used; None if there is none. Changes no files.

        checkpoint = ddpjob.newest("checkpoints")
        print(f"the newest checkpoint is {checkpoint}" if checkpoint else "nothing is saved yet")

    The checkpoints are those of `Training`, `Checkpoints` and `ddpjob-train`, or those of Hugging Face's Trainer:
    `trainer.train(resume_from_checkpoint=ddpjob.newest(output_dir))`.

    Raises:
        StorageUnavailableError: A checkpoint that may be the newest cannot be read now.
        CheckpointUnusableError: The newest checkpoint needs another version of this program.
        OSError: The directory cannot be read.
    """
    path = Path(directory)
    if not path.exists():  # As at the first start of a program that creates it.
        return None
    if checkpoints_of_trainer(path):
        return newest_of_trainer(path).found
    search = find_newest(lambda: checkpoints_in(path), decode, reader=FILES).warn_passed_over()
    search.refuse_newer("Use the version that wrote it")
    return Path(search.found.location) if search.found else None

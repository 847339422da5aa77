"""Writing checkpoints while training goes on: it waits for a copy of the state, and a thread writes the copy.

The thread hardly disturbs training, since its work is done outside Python's lock: hashing, writing, waiting for the
disk.
"""

import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from ddpjob_rank.manifests.manifest import Manifest
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from ddpjob_trainer.model.divergence import check_parameters

from . import state
from .checkpoint_directory import Checkpoints


@dataclass(frozen=True, slots=True)
class Written:
    """A save that is durable."""

    path: Path
    manifest: Manifest
    seconds: float
    """Seconds that it took to write."""


class Snapshots:
    """Copies of a state in CPU memory, each in the memory of the previous one."""

    def __init__(self) -> None:
        on_gpu = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=on_gpu,
                use_non_blocking_copy=on_gpu,
                use_shared_memory=False,
                # The copy itself is short; a step must not change what has not been copied yet.
                use_async_staging=False,
            )
        )

    def take(self, current: state.StateDict) -> state.StateDict:
        """A copy of a state as it is now. It holds until the next one is taken."""
        copy = self._stager.stage(current)
        assert isinstance(copy, dict), "staging is not asynchronous"
        return copy


class Writer:
    """Writes one save at a time; to be called by the thread that trains."""

    def __init__(self, files: Checkpoints, sound: Collection[str] = ()) -> None:
        """`sound`: parameters that are finite in a good checkpoint."""
        self._files = files
        self._sound = sound
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._snapshots: Snapshots | None = None
        self._writing: Future[Written] | None = None
        self._proved = False

    def begin(self, manifest: Manifest, current: state.StateDict, rest: state.StateDict) -> None:
        """Copies a state as it is now, and begins to write the copy and the rest, which will not change.

        The save before it must have been finished.
        """
        assert self._writing is None, "one at a time: they share the copy's memory"
        if self._snapshots is None:
            self._snapshots = Snapshots()
        self._writing = self._thread.submit(self._write, manifest, {**self._snapshots.take(current), **rest})

    def finished(self, *, wait: bool) -> Written | None:
        """The save that was begun, once, when it is durable; None if there is none, or it is not and none shall wait.

        Raises:
            StorageFullError, StorageError: It could not be written.
            SupersededError: A later run has taken over.
            ConfigError: It may not be written, or could not be read back.
            DivergedError: It is not worth keeping.
        """
        if self._writing is None or not (wait or self._writing.done()):
            return None
        writing, self._writing = self._writing, None
        return writing.result()

    def _write(self, manifest: Manifest, copy: state.StateDict) -> Written:
        began = time.monotonic()
        check_parameters(copy["model"], self._sound)
        path = self._files.write(manifest, lambda file: state.encode(copy, file), self._check)
        return Written(path, manifest, time.monotonic() - began)

    def _check(self, file: Path) -> None:
        """Only the first of a run is checked: the others differ only in their numbers."""
        if not self._proved:
            state.prove(file)
            self._proved = True

"""Writes checkpoints while training goes on. Training waits only for a copy of the state; a thread writes the copy.

The thread hardly slows training down, because it releases the GIL while it hashes, writes, and waits for the disk.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch
from ddpjob_rank.manifests.manifest import Manifest
from torch.utils import _pytree as pytree

from .checkpoint_storage import CheckpointStorage
from .encoding import RANKS, SHARED, StateDict, check_encodable, check_loadable, encode


def stager() -> Callable[..., Any]:
    """Returns a private class of torch: 2.8 has no public one, and 2.11's DefaultStager can copy only once."""
    root = logging.getLogger()
    level = root.level
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager  # noqa: PLC0415

    root.setLevel(level)  # In torch 2.8, the import changes the level.
    return StateDictStager


STAGER = stager()


@dataclass(frozen=True, slots=True)
class Written:
    """A save that is durable."""

    location: str
    """The checkpoint's path or URL."""
    manifest: Manifest
    seconds: float
    """Seconds that it took to check and to write the save."""


class Snapshots:
    """Copies of a state in CPU memory; each new copy overwrites the previous one."""

    def __init__(self) -> None:
        self._on_gpu = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        self._stager = STAGER(pin_memory=self._on_gpu)

    def take(self, current: StateDict) -> StateDict:
        """A copy of a state as it is now, valid until the next copy is taken."""
        copy: StateDict = self._stager.stage(current, non_blocking=self._on_gpu)
        if self._on_gpu:
            # Wait, because the next step must not change tensors before they are copied. Copying takes little time.
            leaves = pytree.tree_leaves(current)
            for gpu in {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_cuda}:
                torch.accelerator.synchronize(gpu)
        return copy


class BackgroundSaves:
    """Writes one save at a time, in a thread. Its methods are called by the thread that trains."""

    def __init__(self) -> None:
        self._snapshots: Snapshots | None = None
        self._writing: Future[Written] | None = None
        self._proved = False

    @property
    def begun(self) -> bool:
        """Whether a save was begun that `finished` has not returned yet."""
        return self._writing is not None

    @property
    def busy(self) -> bool:
        """Whether a save is being written."""
        return self._writing is not None and not self._writing.done()

    def finished(self, *, wait: bool) -> Written | None:
        """Returns the save that was begun if it is durable and was not returned before.

        Returns None if there is no such save, or if `wait` is false and the save is not durable yet.

        Raises:
            StorageFullError, StorageError: The save could not be written. After CheckpointMissedError, a kind of
                StorageError, training may go on: the next save may succeed.
            SupersededError: A later run has taken over.
            ConfigError: This user is not allowed to write to the directory, or the save could not be read back.
            DivergedError: A parameter is not finite.
            PeerLostError: A rank was lost before the save was durable, or was at another step.
        """
        if self._writing is None or not (wait or self._writing.done()):
            return None
        writing, self._writing = self._writing, None
        return writing.result()

    def _copy(self, state: StateDict) -> StateDict:
        """A copy of a state, which is valid until the next copy."""
        assert self._writing is None, "one at a time: they share the copy's memory"
        if self._snapshots is None:
            self._snapshots = Snapshots()
        return self._snapshots.take(state)

    def _begin(self, manifest: Manifest, write: Callable[[], object], *, daemon: bool) -> None:
        """Calls `write` in a thread. `write` returns the place of the checkpoint."""
        writing, may_begin = Future[Written](), Event()
        # Not a ThreadPoolExecutor: it would make the main thread wait for this thread, which has to notice that the
        # main thread is ending.
        save = writing, may_begin, manifest, write
        Thread(target=_write_into, args=save, name="checkpoint", daemon=daemon).start()
        self._writing = writing
        may_begin.set()  # Not earlier: the new thread would take the GIL before the training thread can go on.

    def _check(self, file: Path) -> None:
        """Checks only the first save of a run, because later saves differ only in their numbers."""
        if not self._proved:
            check_loadable(file)
            self._proved = True


def _write_into(written: Future[Written], may_begin: Event, manifest: Manifest, write: Callable[[], object]) -> None:
    may_begin.wait()
    began = time.monotonic()
    try:
        written.set_result(Written(str(write()), manifest, time.monotonic() - began))
    except BaseException as error:  # noqa: BLE001  (`finished` raises it)
        written.set_exception(error)


class Writer(BackgroundSaves):
    """Writes the state of all ranks, on rank 0."""

    def __init__(self, storage: CheckpointStorage[Any], check_finite: Callable[[StateDict], object]) -> None:
        """`check_finite` raises DivergedError if the shared state has a parameter that must not be saved."""
        super().__init__()
        self._storage = storage
        self._check_finite = check_finite

    def begin(self, manifest: Manifest, shared: StateDict, ranks: Callable[[], list[StateDict]]) -> None:
        """Copies the shared state, and begins to write the copy, with the ranks' own states.

        The previous save must have finished. `ranks` is called in another thread, and may wait for other processes.
        """
        self._begin(manifest, partial(self._write, manifest, self._copy(shared), ranks), daemon=False)

    def _write(self, manifest: Manifest, shared: StateDict, ranks: Callable[[], list[StateDict]]) -> object:
        state = {SHARED: shared, RANKS: ranks(), "position": manifest.position}
        self._check_finite(shared)
        if not self._storage.checks_files and not self._proved:
            check_encodable(state)
            self._proved = True
        return self._storage.write(manifest, lambda file: encode(state, file), self._check)
